// Perplexity of a trained model beside llama.cpp's (the release that the golden folder's README
// names, plain kernels, without flash attention): the same tokens, windows and scored positions.
#include "engine/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support.h"

namespace picolm {
namespace {

using testing::golden_dir;
using testing::kNoGolden;

constexpr const char* kText =
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "
    "One day, she saw a big, red ball. She wanted to play with it, but it was too high.\n"
    "Lily's mom said, \"Lily, let's go to the park.\" Lily was sad and didn't know what to do. She "
    "said, \"I want to play with your ball, but I can't find it.\"\n"
    "A dog with a short tail ran by and barked at the tree. \"Why do you bark?\" asked the girl. "
    "The old dog looked up, and there it was: her ball sat on a green branch.\n";

struct Reference {
    const char* model;
    double loss;       // of 93 tokens: three windows of 64
    double tolerance;  // both engines round activations to 8 bits where weights are quantised
};

class GoldenPerplexity : public ::testing::TestWithParam<Reference> {};

INSTANTIATE_TEST_SUITE_P(
    Stories, GoldenPerplexity,
    ::testing::Values(Reference{"f32", 1.10976554, 5e-4}, Reference{"f16", 1.10990716, 5e-4},
                      Reference{"bf16", 1.10963460, 2e-3}, Reference{"q8_0", 1.11349783, 5e-3},
                      Reference{"q5_1", 1.11794790, 1e-2}, Reference{"q4_0", 1.19502189, 1e-2}),
    [](const auto& param) { return std::string(param.param.model); });

TEST_P(GoldenPerplexity, IsThatOfTheReferenceEngine) {
    if (golden_dir().empty()) GTEST_SKIP() << kNoGolden;
    const std::string path = golden_dir() + "/stories260K-" + GetParam().model + ".gguf";
    const Result<std::unique_ptr<Engine>> engine = Engine::open(path, {.n_threads = 2});
    ASSERT_TRUE(engine) << engine.error().text;
    const Tokenizer& tokenizer = (*engine)->tokenizer();
    const auto tokens = *tokenizer.encode(kText, {.add_special = true, .parse_special = false});
    EXPECT_EQ(tokens.size(), 210u);
    ASSERT_TRUE(tokenizer.add_bos());
    PerplexityRun run{.tokens = tokens, .bos = *tokenizer.bos()};
    run.windows = *cut_into_windows(tokens.size(), 64, 0, 0);
    auto session = std::move(*Session::create(**engine, {.n_ctx = 64}));
    PerplexityResult result;
    const Status measured = measure_perplexity(*session, run, result);
    ASSERT_TRUE(measured) << measured.error().text;
    EXPECT_EQ(result.loss.n(), 93u);
    EXPECT_NEAR(result.loss.mean(), GetParam().loss, GetParam().tolerance);
}

// Stories that the model tells itself, in f16: about 8,000 tokens.
std::string stories(Engine& engine) {
    std::string text;
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        auto session = std::move(*Session::create(engine, {}));
        const auto prompt = *engine.tokenizer().encode("Once upon a time", {.add_special = true});
        EXPECT_TRUE(session->sync(prompt));
        GenerateOptions options;
        options.max_tokens = 440;
        options.sampler.temperature = 1.0f;
        options.sampler.top_p = 1.0f;
        options.sampler.seed = seed;
        text += "Once upon a time";
        EXPECT_TRUE(session->generate(options, [&](std::string_view part) {
            text += part;
            return true;
        }));
        text += '\n';
    }
    return text;
}

double loss_of(const std::string& text, KvTypes types) {
    const auto engine = std::move(
        *Engine::open(golden_dir() + "/stories260K-f32.gguf", {.n_threads = 2, .kv_types = types}));
    const auto tokens =
        *engine->tokenizer().encode(text, {.add_special = true, .parse_special = false});
    PerplexityRun run{.tokens = tokens, .bos = *engine->tokenizer().bos()};
    run.windows = *cut_into_windows(tokens.size(), 256, 0, 0);
    auto session = std::move(*Session::create(*engine, {.n_ctx = 256}));
    PerplexityResult result;
    EXPECT_TRUE(measure_perplexity(*session, run, result));
    EXPECT_GT(result.loss.n(), 3000u);
    return result.loss.mean();
}

TEST(GoldenPerplexityOfKvTypes, EightBitsCostLessThanATenthOfAPercent) {
    if (golden_dir().empty()) GTEST_SKIP() << kNoGolden;
    const auto engine = std::move(*Engine::open(golden_dir() + "/stories260K-f32.gguf", {}));
    const std::string text = stories(*engine);
    const double f16 = loss_of(text, {});
    const auto ratio = [&](KvTypes types) { return std::exp(loss_of(text, types) - f16); };
    EXPECT_NEAR(ratio({KvType::q8_0, KvType::q8_0}), 1.0, 1e-3);
    EXPECT_NEAR(ratio({KvType::q8_0, KvType::q4_0}), 1.0, 5e-3);
    EXPECT_LT(ratio({KvType::q4_0, KvType::q4_0}), 1.3);
}

}  // namespace
}  // namespace picolm
