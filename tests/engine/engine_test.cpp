// The promises, end to end below the command line: the same bytes whatever was reused, chunked,
// threaded, saved or restored.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "cache/file_store.h"
#include "engine/session.h"
#include "model/random_model.h"
#include "support.h"

namespace picolm {
namespace {

using testing::TempDir;

struct Shape {
    const char* type;
    bool variant;  // biases, own head size, rope divisors, tied
};

class EngineTest : public ::testing::TestWithParam<Shape> {
  protected:
    TempDir dir;
    std::string path = dir.file("model.gguf");
    uint32_t n_vocab = 512;

    void SetUp() override {
        RandomModelSpec spec;
        spec.type = GetParam().type;
        spec.n_ctx = 512;
        if (GetParam().variant) {
            spec.head_dim = 48;
            spec.rope_dim = 32;
            spec.n_head_kv = 2;
            spec.rope_freqs = spec.attn_bias = spec.ffn_bias = spec.tied = true;
            spec.rope_scale = 2.0f;
        }
        const Status written = write_random_model(spec, path);
        ASSERT_TRUE(written) << written.error().text;
    }
    std::unique_ptr<Engine> open(uint32_t threads = 2, uint32_t chunk = 128) {
        EngineOptions options;
        options.n_threads = threads;
        options.max_chunk = chunk;
        Result<std::unique_ptr<Engine>> engine = Engine::open(path, options);
        if (!engine) ADD_FAILURE() << engine.error().text;
        return engine ? std::move(*engine) : nullptr;
    }
    std::unique_ptr<Session> session(Engine& engine, cache::Store* store = nullptr,
                                     uint32_t n_ctx = 0) {
        return std::move(*Session::create(engine, {n_ctx, store}));
    }
    std::vector<TokenId> tokens(size_t n, uint32_t seed = 1) const {
        std::mt19937 rng(seed);
        std::vector<TokenId> ids(n);
        for (TokenId& id : ids) id = static_cast<TokenId>(rng() % n_vocab);
        return ids;
    }
};

// The logits of the prompt's last token and of three greedy tokens after it.
std::vector<float> trace(Session& session, std::span<const TokenId> prompt,
                         SyncReport* report_out = nullptr) {
    const Result<SyncReport> report = session.sync(prompt);
    if (!report) ADD_FAILURE() << report.error().text;
    if (report && report_out) *report_out = *report;
    std::vector<float> all;
    for (int i = 0; i < 4; ++i) {
        const Result<std::span<const float>> logits = session.logits();
        if (!logits) ADD_FAILURE() << logits.error().text;
        all.insert(all.end(), logits->begin(), logits->end());
        const auto best = std::max_element(logits->begin(), logits->end()) - logits->begin();
        const Status appended = session.append(static_cast<TokenId>(best));
        if (!appended) ADD_FAILURE() << appended.error().text;
    }
    return all;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
    if (a.empty() || b.empty()) return a.empty() && b.empty();
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

INSTANTIATE_TEST_SUITE_P(Types, EngineTest,
                         ::testing::Values(Shape{"Q4_K_M", false}, Shape{"Q4_K_M", true},
                                           Shape{"Q8_0", true}, Shape{"F16", false},
                                           Shape{"Q4_0", false}, Shape{"pure:IQ4_XS", false}),
                         [](const auto& param) {
                             std::string name = param.param.type;
                             std::replace(name.begin(), name.end(), ':', '_');
                             return name + (param.param.variant ? "_variant" : "");
                         });

TEST_P(EngineTest, ChunksAndThreadsGiveTheSameBytes) {
    const std::vector<TokenId> prompt = tokens(200);
    auto reference = open(1, 200);
    auto s = session(*reference);
    const std::vector<float> want = trace(*s, prompt);
    for (uint32_t threads = 1; threads <= 4; ++threads)
        for (const uint32_t chunk : {1u, 7u, 64u, 128u, 200u}) {
            auto engine = open(threads, chunk);
            auto other = session(*engine);
            ASSERT_TRUE(same(want, trace(*other, prompt)))
                << threads << " threads, chunk " << chunk;
        }
}

TEST_P(EngineTest, RandomCutsGiveTheSameBytes) {
    const std::vector<TokenId> prompt = tokens(200);
    auto engine = open();
    auto s = session(*engine);
    const std::vector<float> want = trace(*s, prompt);
    std::mt19937 rng(5);
    for (int round = 0; round < 12; ++round) {
        auto other = session(*engine);
        for (size_t n = 0; n < prompt.size();) {
            n = std::min(prompt.size(), n + 1 + rng() % 90);
            ASSERT_TRUE(other->sync(std::span(prompt).first(n)));
        }
        ASSERT_TRUE(same(want, trace(*other, prompt)));
    }
}

// The logits of every position at once are those of the tokens one by one.
TEST_P(EngineTest, EvaluateGivesTheLogitsOfEveryPosition) {
    const std::vector<TokenId> prompt = tokens(150);
    auto engine = open();
    auto step = session(*engine);
    std::vector<float> want;
    for (size_t n = 1; n <= prompt.size(); ++n) {
        ASSERT_TRUE(step->sync(std::span(prompt).first(n)));
        const std::span<const float> logits = *step->logits();
        want.insert(want.end(), logits.begin(), logits.end());
    }
    for (const uint32_t chunk : {1u, 7u, 64u, 128u})
        for (const uint32_t from : {0u, 1u, 63u, 100u, 149u, 150u}) {
            auto other = open(1 + chunk % 2, chunk);
            auto s = session(*other);
            std::vector<float> got;
            uint32_t next = from;
            for (int round = 0; round < 2; ++round) {
                got.clear();
                next = from;
                const Status done = s->evaluate(
                    prompt, from, [&](uint32_t first, uint32_t n, std::span<const float> logits) {
                        EXPECT_EQ(first, next);
                        EXPECT_LE(n, Session::kLogitsAtOnce);
                        next = first + n;
                        got.insert(got.end(), logits.begin(), logits.end());
                        return Status();
                    });
                ASSERT_TRUE(done) << done.error().text;
            }
            EXPECT_EQ(next, prompt.size());
            ASSERT_TRUE(same({want.begin() + from * n_vocab, want.end()}, got))
                << "chunk " << chunk << " from " << from;
        }
}

TEST_P(EngineTest, EvaluateEndsWithTheErrorOfItsSink) {
    auto engine = open(2, 64);
    auto s = session(*engine);
    const std::vector<TokenId> prompt = tokens(100);
    const Status done = s->evaluate(prompt, 0, [](uint32_t, uint32_t, std::span<const float>) {
        return Status(Error{ErrorKind::io, "full"});
    });
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().text, "full");
    EXPECT_EQ(s->logits().has_value(), false);
    // The session is as good as new.
    auto other = session(*engine);
    EXPECT_TRUE(same(trace(*s, prompt), trace(*other, prompt)));
}

TEST_P(EngineTest, EveryLevelGivesTheSameBytes) {
    const std::vector<TokenId> prompt = tokens(90);
    std::vector<float> want;
    for (const std::string_view level : usable_levels()) {
        setenv("PICOLM_ISA", std::string(level).c_str(), 1);
        auto engine = open();
        unsetenv("PICOLM_ISA");
        ASSERT_EQ(engine->kernels().name, level);
        auto s = session(*engine);
        const std::vector<float> got = trace(*s, prompt);
        if (want.empty()) want = got;
        ASSERT_TRUE(same(want, got)) << level;
    }
}

TEST_P(EngineTest, RestoredAtEveryLength) {
    auto engine = open();
    for (const uint32_t n : {70u, 200u}) {
        const std::vector<TokenId> prompt = tokens(n);
        auto cold = session(*engine);
        const std::vector<float> want = trace(*cold, prompt);
        for (uint32_t shared = 0; shared <= n; ++shared) {
            // Another prompt that shares the first `shared` tokens was saved before.
            const std::string file =
                dir.file("at-" + std::to_string(n) + "-" + std::to_string(shared));
            cache::FileStore store(file);
            std::vector<TokenId> other = tokens(shared + 9, 99);
            std::copy_n(prompt.begin(), shared, other.begin());
            if (shared < n && other[shared] == prompt[shared])
                other[shared] = (other[shared] + 1) % 512;
            auto first = session(*engine, &store);
            ASSERT_TRUE(first->sync(other));
            const auto saved = first->finish_saving();
            ASSERT_TRUE(saved && *saved);
            ASSERT_EQ((*saved)->positions_total, other.size());
            auto warm = session(*engine, &store);
            SyncReport report;
            ASSERT_TRUE(same(want, trace(*warm, prompt, &report))) << shared << " of " << n;
            ASSERT_EQ(report.n_loaded, shared);
            ASSERT_EQ(report.n_computed, std::max(1u, n - shared));
            warm->finish_saving();
            std::filesystem::remove(file);
        }
    }
}

TEST_P(EngineTest, ExactHitRunsNoLayer) {
    auto engine = open();
    cache::FileStore store(dir.file("p.kvc"));
    for (const uint32_t n : {1u, 25u, 64u, 200u}) {
        const std::vector<TokenId> prompt = tokens(n, n);
        auto cold = session(*engine, &store);
        const std::vector<float> want = trace(*cold, prompt);
        ASSERT_TRUE(cold->finish_saving());
        auto warm = session(*engine, &store);
        const uint64_t before = engine->forward().layers_run();
        const Result<SyncReport> report = warm->sync(prompt);
        ASSERT_TRUE(report);
        EXPECT_EQ(report->n_loaded, n);
        EXPECT_EQ(report->n_computed, 0u);
        ASSERT_TRUE(warm->logits());
        EXPECT_EQ(engine->forward().layers_run(), before);
        EXPECT_FALSE(warm->finish_saving());  // nothing new, nothing written
        ASSERT_TRUE(same(want, trace(*warm, prompt)));
    }
}

TEST_P(EngineTest, SavedByOneProcessUsedByAnother) {
    const std::vector<TokenId> prompt = tokens(100);
    const std::string file = dir.file("p.kvc");
    const pid_t child = fork();
    if (child == 0) {
        EngineOptions options;
        options.n_threads = 1;
        auto engine = Engine::open(path, options);
        cache::FileStore store(file);
        auto s = Session::create(**engine, {0, &store});
        const bool ok = (*s)->sync(prompt).has_value() && (*s)->finish_saving().has_value();
        _exit(ok ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    ASSERT_EQ(status, 0);
    auto engine = open();
    auto cold = session(*engine);
    const std::vector<float> want = trace(*cold, prompt);
    cache::FileStore store(file);
    auto warm = session(*engine, &store);
    SyncReport report;
    ASSERT_TRUE(same(want, trace(*warm, prompt, &report)));
    EXPECT_EQ(report.n_loaded, 100u);
}

// E4, E9 and the bounds of a context.
TEST_P(EngineTest, OtherModelAndSmallerContext) {
    const std::vector<TokenId> prompt = tokens(100);
    auto engine = open();
    cache::FileStore store(dir.file("p.kvc"));
    auto cold = session(*engine, &store);
    ASSERT_TRUE(cold->sync(prompt));
    ASSERT_TRUE(cold->finish_saving());

    auto small = session(*engine, &store, 60);
    const Result<SyncReport> too_long = small->sync(prompt);
    ASSERT_FALSE(too_long);
    EXPECT_EQ(too_long.error().text,
              "prompt is too long: 100 tokens, maximum context length is 60");
    const Result<SyncReport> part = small->sync(std::span(prompt).first(60));
    ASSERT_TRUE(part);
    EXPECT_EQ(part->n_loaded, 60u);
    EXPECT_TRUE(part->recomputed_last);  // only the longer prompt's hidden state was saved
    EXPECT_EQ(part->n_computed, 1u);

    RandomModelSpec other;
    other.type = GetParam().type;
    other.seed = 43;
    other.n_ctx = 512;
    ASSERT_TRUE(write_random_model(other, path));
    auto changed = open();
    auto s = session(*changed, &store);
    const Result<SyncReport> report = s->sync(prompt);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->n_loaded, 0u);
    ASSERT_FALSE(report->notes.empty());
    EXPECT_NE(report->notes[0].text.find("model"), std::string::npos) << report->notes[0].text;
}

TEST_P(EngineTest, CancelledPrefillIsKeptAndSaved) {
    auto engine = open(2, 32);
    cache::FileStore store(dir.file("p.kvc"));
    const std::vector<TokenId> prompt = tokens(200);
    auto cold = session(*engine);
    const std::vector<float> want = trace(*cold, prompt);
    auto s = session(*engine, &store);
    std::atomic<bool> cancel{false};
    const Result<SyncReport> report =
        s->sync(prompt, {[&](uint32_t done, uint32_t) { cancel = done >= 64; }, &cancel});
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().kind, ErrorKind::cancelled);
    ASSERT_TRUE(s->finish_saving());
    auto again = session(*engine, &store);
    SyncReport second;
    ASSERT_TRUE(same(want, trace(*again, prompt, &second)));
    EXPECT_EQ(second.n_loaded, 64u);
}

TEST_P(EngineTest, SharedPagesAreNotOverwritten) {
    auto engine = open();
    const std::vector<TokenId> prompt = tokens(100);
    KvSequence a{KvGeometry(engine->spec())};
    std::vector<float> hidden(engine->spec().n_embd), again(engine->spec().n_embd);
    ASSERT_TRUE(engine->forward().run(a, prompt, 1, hidden.data()));
    KvSequence b = a.share();
    const std::vector<TokenId> left = tokens(30, 7), right = tokens(30, 8);
    ASSERT_TRUE(engine->forward().run(a, left, 1, hidden.data()));
    ASSERT_TRUE(engine->forward().run(b, right, 1, again.data()));
    a.truncate(100);
    ASSERT_TRUE(engine->forward().run(a, right, 1, hidden.data()));
    EXPECT_EQ(hidden, again);
}

}  // namespace
}  // namespace picolm
