// Perplexity of a trained model beside llama.cpp's (the release that the golden folder's README
// names, plain kernels, without flash attention): the same tokens, windows and scored positions.
#include "engine/perplexity.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace picolm
