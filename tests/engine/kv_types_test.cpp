// The promises for every storage type of keys and values: the same bytes whatever was chunked,
// threaded or restored, and no cache file read with other types than it was written with.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "cache/file_store.h"
#include "engine/session.h"
#include "model/random_model.h"
#include "support.h"

namespace picolm {
namespace {

using testing::TempDir;

class KvTypesTest : public ::testing::TestWithParam<const char*> {
  protected:
    TempDir dir;
    std::string path = dir.file("model.gguf");

    void SetUp() override {
        RandomModelSpec spec;
        spec.type = "Q8_0";
        spec.n_ctx = 512;
        spec.n_head_kv = 2;
        spec.head_dim = 48;  // the second block of a head is short
        spec.rope_dim = 32;
        const Status written = write_random_model(spec, path);
        ASSERT_TRUE(written) << written.error().text;
    }
    std::unique_ptr<Engine> open(uint32_t threads = 2, uint32_t chunk = 128) {
        return open(threads, chunk, GetParam());
    }
    std::unique_ptr<Engine> open(uint32_t threads, uint32_t chunk, const char* types) {
        EngineOptions options;
        options.n_threads = threads;
        options.max_chunk = chunk;
        options.kv_types = *parse_kv_types(types);
        Result<std::unique_ptr<Engine>> engine = Engine::open(path, options);
        if (!engine) ADD_FAILURE() << engine.error().text;
        return engine ? std::move(*engine) : nullptr;
    }
    static std::vector<TokenId> tokens(size_t n, uint32_t seed = 1) {
        std::mt19937 rng(seed);
        std::vector<TokenId> ids(n);
        for (TokenId& id : ids) id = static_cast<TokenId>(rng() % 512);
        return ids;
    }
    // Logits behind the prompt and behind each of some tokens after it.
    static std::vector<float> trace(Session& session, std::span<const TokenId> prompt,
                                    SyncReport* report = nullptr) {
        std::vector<float> all;
        const auto take = [&] {
            const Result<std::span<const float>> logits = session.logits();
            if (!logits) ADD_FAILURE() << logits.error().text;
            if (logits) all.insert(all.end(), logits->begin(), logits->end());
        };
        const Result<SyncReport> synced = session.sync(prompt);
        if (!synced) ADD_FAILURE() << synced.error().text;
        if (synced && report) *report = *synced;
        take();
        for (const TokenId token : tokens(6, 77)) {
            EXPECT_TRUE(session.append(token));
            take();
        }
        return all;
    }
    static bool same(const std::vector<float>& a, const std::vector<float>& b) {
        return a.size() == b.size() &&
               std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
    }
};
INSTANTIATE_TEST_SUITE_P(Types, KvTypesTest,
                         ::testing::Values("f16,f16", "f16,q8_0", "f16,q4_0", "q8_0,f16",
                                           "q8_0,q8_0", "q8_0,q4_0", "q4_0,f16", "q4_0,q8_0",
                                           "q4_0,q4_0"),
                         [](const auto& param) {
                             std::string name = param.param;
                             name[name.find(',')] = '_';
                             return name;
                         });

TEST_P(KvTypesTest, ChunksThreadsAndLevelsGiveTheSameBytes) {
    const std::vector<TokenId> prompt = tokens(150);
    auto reference = open(1, 150);
    auto s = std::move(*Session::create(*reference, {}));
    const std::vector<float> want = trace(*s, prompt);
    for (const uint32_t threads : {1u, 3u})
        for (const uint32_t chunk : {1u, 7u, 64u, 150u}) {
            auto engine = open(threads, chunk);
            auto other = std::move(*Session::create(*engine, {}));
            ASSERT_TRUE(same(want, trace(*other, prompt))) << threads << " " << chunk;
        }
    for (const std::string_view level : usable_levels()) {
        setenv("PICOLM_ISA", std::string(level).c_str(), 1);
        auto engine = open();
        unsetenv("PICOLM_ISA");
        auto other = std::move(*Session::create(*engine, {}));
        ASSERT_TRUE(same(want, trace(*other, prompt))) << level;
    }
}

TEST_P(KvTypesTest, SavedStateGivesTheSameBytes) {
    auto engine = open();
    cache::FileStore store(dir.file("p.kvc"));
    std::mt19937 rng(4);
    const std::vector<TokenId> prompt = tokens(200);
    for (int round = 0; round < 12; ++round) {
        // Prompts that share some of what is saved, and part from it at any position.
        std::vector<TokenId> mine(prompt.begin(), prompt.begin() + 1 + rng() % 200);
        const std::vector<TokenId> tail = tokens(rng() % 40, 100 + static_cast<uint32_t>(round));
        mine.insert(mine.end(), tail.begin(), tail.end());
        auto cold = std::move(*Session::create(*engine, {}));
        const std::vector<float> want = trace(*cold, mine);
        for (int again = 0; again < 2; ++again) {
            auto warm = std::move(*Session::create(*engine, {0, &store}));
            SyncReport report;
            ASSERT_TRUE(same(want, trace(*warm, mine, &report))) << round;
            const auto saved = warm->finish_saving();
            if (saved) {
                ASSERT_TRUE(*saved) << saved->error().text;
            }
            if (again == 1) {
                ASSERT_LE(report.n_computed, 1u);
            }
        }
    }
}

TEST_P(KvTypesTest, ACacheOfOtherTypesIsNotUsed) {
    const std::string file = dir.file("p.kvc");
    const std::vector<TokenId> prompt = tokens(100);
    const char* other = std::string_view(GetParam()) == "f16,q8_0" ? "q8_0,f16" : "f16,q8_0";
    {
        auto engine = open(2, 128, other);
        cache::FileStore store(file);
        auto s = std::move(*Session::create(*engine, {0, &store}));
        ASSERT_TRUE(s->sync(prompt));
        ASSERT_TRUE(s->finish_saving());
    }
    auto engine = open();
    auto cold = std::move(*Session::create(*engine, {}));
    const std::vector<float> want = trace(*cold, prompt);
    cache::FileStore store(file);
    auto s = std::move(*Session::create(*engine, {0, &store}));
    SyncReport report;
    EXPECT_TRUE(same(want, trace(*s, prompt, &report)));
    EXPECT_EQ(report.n_loaded, 0u);
    const std::string reason = std::string("kv: ") + other + " there, " + GetParam() + " here";
    EXPECT_TRUE(std::any_of(report.notes.begin(), report.notes.end(), [&](const cache::Note& note) {
        return note.text.find(reason) != std::string::npos;
    })) << (report.notes.empty() ? "no note" : report.notes.front().text);
}

TEST_P(KvTypesTest, ThePlanAndTheIdentityNameTheTypes) {
    auto engine = open();
    EXPECT_NE(engine->cache_identity().find(std::string(";kv=") + GetParam() + ";"),
              std::string::npos);
    const KvTypes types = *parse_kv_types(GetParam());
    const ModelSpec& spec = engine->spec();
    const MemoryPlan plan = engine->plan(100);
    EXPECT_EQ(plan.kv, uint64_t{128} * spec.n_layer * spec.n_head_kv *
                           (kv_row_bytes(types.k, 48) + kv_row_bytes(types.v, 48)));
    EXPECT_NE(plan.describe().find(GetParam()), std::string::npos);
    auto s = std::move(*Session::create(*engine, {}));
    ASSERT_TRUE(s->sync(tokens(100)));
    EXPECT_EQ(s->kv_bytes(), plan.kv);
}

}  // namespace
}  // namespace picolm
