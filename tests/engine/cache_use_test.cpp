// How an assistant uses the cache file: one system prompt with many messages, two assistants on
// one file. Reuse, bytes written, size, and the answer's bytes.
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

class CacheUseTest : public ::testing::Test {
  protected:
    TempDir dir;
    std::unique_ptr<Engine> engine;

    void SetUp() override {
        RandomModelSpec spec;
        spec.n_ctx = 1024;
        spec.type = "Q8_0";
        ASSERT_TRUE(write_random_model(spec, dir.file("model.gguf")));
        EngineOptions options;
        options.n_threads = 2;
        Result<std::unique_ptr<Engine>> opened = Engine::open(dir.file("model.gguf"), options);
        ASSERT_TRUE(opened) << opened.error().text;
        engine = std::move(*opened);
    }
    static std::vector<TokenId> random_tokens(std::mt19937& rng, size_t n) {
        std::vector<TokenId> ids(n);
        for (TokenId& id : ids) id = rng() % 512;
        return ids;
    }
    struct Run {
        std::vector<float> logits;
        SyncReport sync;
        uint64_t bytes_written = 0;
    };
    Run run(std::span<const TokenId> prompt, cache::Store* store) {
        Run result;
        auto session = std::move(*Session::create(*engine, {0, store}));
        const Result<SyncReport> report = session->sync(prompt);
        if (!report) ADD_FAILURE() << report.error().text;
        if (!report) return result;
        result.sync = *report;
        const Result<std::span<const float>> logits = session->logits();
        if (logits) result.logits.assign(logits->begin(), logits->end());
        const auto saved = session->finish_saving();
        if (saved && !*saved) ADD_FAILURE() << saved->error().text;
        if (saved && *saved) result.bytes_written = (*saved)->bytes_written;
        return result;
    }
    uint64_t position_bytes() const { return KvGeometry(engine->spec()).position_bytes(); }
};

TEST_F(CacheUseTest, HundredMessagesBehindOneSystemPrompt) {
    std::mt19937 rng(1);
    const std::string path = dir.file("p.kvc");
    cache::FileStore store(path);
    const std::vector<TokenId> system = random_tokens(rng, 500);
    uint64_t written = 0, distinct = 500;
    for (int i = 0; i < 100; ++i) {
        std::vector<TokenId> prompt = system;
        const std::vector<TokenId> message = random_tokens(rng, 20);
        prompt.insert(prompt.end(), message.begin(), message.end());
        const Run cached = run(prompt, &store);
        ASSERT_EQ(cached.logits, run(prompt, nullptr).logits);
        if (i > 0) {
            ASSERT_GE(cached.sync.n_loaded, 500u);
            ASSERT_LE(cached.sync.n_computed, 20u);
        }
        written += cached.bytes_written;
        distinct += 520 - std::max(500u, cached.sync.n_loaded);
        ASSERT_LE(std::filesystem::file_size(path), cache::kDefaultFileLimit);
    }
    EXPECT_LE(static_cast<double>(written), 1.1 * static_cast<double>(distinct * position_bytes()));
    std::printf("bytes written: %.3f of the distinct positions'\n",
                static_cast<double>(written) / static_cast<double>(distinct * position_bytes()));
}

TEST_F(CacheUseTest, TwoPromptsInTurn) {
    std::mt19937 rng(2);
    cache::FileStore store(dir.file("p.kvc"));
    const std::vector<TokenId> prompts[] = {random_tokens(rng, 300), random_tokens(rng, 211)};
    const std::vector<float> want[] = {run(prompts[0], nullptr).logits,
                                       run(prompts[1], nullptr).logits};
    for (size_t round = 0; round < 50; ++round)
        for (size_t i = 0; i < 2; ++i) {
            const Run cached = run(prompts[i], &store);
            ASSERT_EQ(cached.logits, want[i]);
            ASSERT_EQ(cached.sync.n_computed, round == 0 ? prompts[i].size() : 0u);
            if (round > 0) {
                ASSERT_EQ(cached.bytes_written, 0u);
            }
        }
}

// The file may hold about two of these prompts: five in turn must stay within it and right.
TEST_F(CacheUseTest, MorePromptsThanTheFileMayHold) {
    std::mt19937 rng(3);
    const std::string path = dir.file("p.kvc");
    cache::FileStoreOptions options;
    options.limit_bytes = 2 * 250 * position_bytes();
    cache::FileStore store(path, options);
    std::vector<std::vector<TokenId>> prompts;
    for (int i = 0; i < 5; ++i) prompts.push_back(random_tokens(rng, 200));
    for (int round = 0; round < 4; ++round)
        for (const std::vector<TokenId>& prompt : prompts) {
            ASSERT_EQ(run(prompt, &store).logits, run(prompt, nullptr).logits);
            ASSERT_LE(std::filesystem::file_size(path), options.limit_bytes);
            ASSERT_EQ(run(prompt, &store).sync.n_computed, 0u);  // the newest is always kept
        }
}

// E10: an id in the middle of the prompt changes with every request.
TEST_F(CacheUseTest, E10_ClockInTheMiddle) {
    std::mt19937 rng(4);
    cache::FileStore store(dir.file("p.kvc"));
    std::vector<TokenId> prompt = random_tokens(rng, 300);
    run(prompt, &store);
    for (TokenId clock = 0; clock < 10; ++clock) {
        prompt[150] = (prompt[150] + 1) % 512;
        const Run cached = run(prompt, &store);
        ASSERT_EQ(cached.logits, run(prompt, nullptr).logits);
        ASSERT_EQ(cached.sync.n_loaded, 150u);
    }
}

}  // namespace
}  // namespace picolm
