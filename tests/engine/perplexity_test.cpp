#include "engine/perplexity.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "model/random_model.h"
#include "support.h"

namespace picolm {
namespace {

using testing::TempDir;

struct Measured {
    PerplexityResult result;
    Status status;
};

class PerplexityTest : public ::testing::Test {
  protected:
    TempDir dir;
    std::string q8 = model("Q8_0"), q4 = model("Q4_0");
    std::string saved = dir.file("saved.logits");
    std::vector<TokenId> text = tokens(400, 1);
    Windows windows = *cut_into_windows(400, 64, 0, 0);

    std::string model(const std::string& type) {
        RandomModelSpec spec;
        spec.type = type;
        spec.n_embd = 128;
        spec.n_head = 4;
        spec.n_head_kv = 2;
        spec.n_ff = 256;
        const Status written = write_random_model(spec, dir.file(type + ".gguf"));
        EXPECT_TRUE(written) << written.error().text;
        return dir.file(type + ".gguf");
    }
    static std::vector<TokenId> tokens(size_t n, uint32_t seed) {
        std::mt19937 random(seed);
        std::vector<TokenId> ids(n);
        for (TokenId& id : ids) id = static_cast<TokenId>(random() % 512);
        return ids;
    }
    static std::unique_ptr<Engine> open(const std::string& path, uint32_t threads = 2,
                                        uint32_t chunk = 128) {
        return std::move(*Engine::open(path, {.n_threads = threads, .max_chunk = chunk}));
    }
    Measured measure(Engine& engine, PerplexityRun run) {
        run.tokens = text;
        run.windows = windows;
        auto session = std::move(*Session::create(engine, {.n_ctx = windows.n_ctx}));
        Measured m;
        m.status = measure_perplexity(*session, run, m.result);
        return m;
    }
    // A measured run whose logits are in `saved`.
    Measured save(const std::string& path, TokenId bos = kNoBos) {
        auto engine = open(path);
        auto writer = std::move(*LogitsWriter::create(saved, {512, windows, bos},
                                                      std::span(text).first(windows.n_tokens())));
        Measured m = measure(*engine, {.bos = bos, .save = writer.get()});
        EXPECT_TRUE(m.status) << m.status.error().text;
        EXPECT_TRUE(writer->finish());
        return m;
    }
    Measured compare(const std::string& path, TokenId bos = kNoBos) {
        auto engine = open(path);
        auto reader = std::move(*LogitsReader::open(saved));
        return measure(*engine, {.bos = bos, .compare = reader.get()});
    }
};

// Token by token, with libm.
TEST_F(PerplexityTest, IsTheMeanLossOfTheSecondHalves) {
    auto engine = open(q8);
    auto session = std::move(*Session::create(*engine, {.n_ctx = 64}));
    for (const TokenId bos : {kNoBos, TokenId{1}}) {
        std::vector<double> losses;
        for (size_t start = 0; start + 64 <= text.size(); start += 64) {
            std::vector<TokenId> window(text.begin() + static_cast<ptrdiff_t>(start),
                                        text.begin() + static_cast<ptrdiff_t>(start) + 64);
            if (bos != kNoBos) window[0] = bos;
            for (size_t i = 33; i < 64; ++i) {
                ASSERT_TRUE(session->sync(std::span(window).first(i)));
                const std::span<const float> logits = *session->logits();
                double sum = 0;
                for (const float logit : logits) sum += std::exp(logit - logits[window[i]]);
                losses.push_back(std::log(sum));
            }
        }
        const auto n = static_cast<double>(losses.size());
        double mean = 0, squares = 0;
        for (const double loss : losses) mean += loss / n;
        for (const double loss : losses) squares += (loss - mean) * (loss - mean);
        const Measured m = measure(*engine, {.bos = bos});
        ASSERT_TRUE(m.status) << m.status.error().text;
        EXPECT_EQ(m.result.loss.n(), losses.size());
        EXPECT_EQ(m.result.n_windows_done, 6u);
        EXPECT_NEAR(m.result.loss.mean(), mean, 1e-6);
        EXPECT_NEAR(m.result.loss.error(), std::sqrt(squares / n / (n - 1)), 1e-6);
        EXPECT_NEAR(exp_of(m.result.loss).value, std::exp(mean), 1e-5 * std::exp(mean));
        EXPECT_FALSE(m.result.divergence);
    }
}

TEST_F(PerplexityTest, ThreadsAndChunksChangeNoBit) {
    for (const uint32_t stride : {0u, 64u, 24u}) {
        windows = *cut_into_windows(400, 64, stride, 0);
        std::vector<double> seen;
        for (const uint32_t threads : {1u, 2u})
            for (const uint32_t chunk : {1u, 7u, 33u, 128u}) {
                auto engine = open(q4, threads, chunk);
                const Measured m = measure(*engine, {.bos = 1});
                ASSERT_TRUE(m.status) << m.status.error().text;
                EXPECT_EQ(m.result.loss.n(), windows.n_scored());
                seen.push_back(m.result.loss.mean());
                EXPECT_EQ(seen.front(), seen.back());
            }
    }
}

TEST_F(PerplexityTest, ARunHasNoDivergenceFromItself) {
    const Measured first = save(q8);
    const Measured m = compare(q8);
    ASSERT_TRUE(m.status) << m.status.error().text;
    const Divergence& d = *m.result.divergence;
    EXPECT_EQ(m.result.loss.mean(), first.result.loss.mean());
    EXPECT_EQ(d.saved_loss.mean(), first.result.loss.mean());
    EXPECT_EQ(exp_of(d.loss_difference).value, 1);
    EXPECT_EQ(exp_of(d.loss_difference).error, 0);
    EXPECT_EQ(d.same_best().value, 1);
    EXPECT_EQ(d.kl.n(), windows.n_scored());
    // Half the mean square of the rounding: below (9e-5)^2 while nothing likely is far down.
    EXPECT_LT(d.kl_quantile(1), 2e-8);
    for (const double kl : d.kl_values) EXPECT_GT(kl, -1e-12);
}

TEST_F(PerplexityTest, ADivergenceIsThatOfTheTwoDistributions) {
    const Measured first = save(q8);
    const Measured m = compare(q4);
    ASSERT_TRUE(m.status) << m.status.error().text;
    const Divergence& d = *m.result.divergence;
    // The same from both models' logits, without a file.
    auto a = open(q8), b = open(q4);
    auto sa = std::move(*Session::create(*a, {})), sb = std::move(*Session::create(*b, {}));
    double sum = 0;
    size_t n = 0, same = 0;
    for (size_t start = 0; start < windows.n_tokens(); start += 64)
        for (size_t i = start + 33; i < start + 64; ++i, ++n) {
            const auto context = std::span(text).subspan(start, i - start);
            ASSERT_TRUE(sa->sync(context));
            ASSERT_TRUE(sb->sync(context));
            const std::span<const float> la = *sa->logits(), lb = *sb->logits();
            const LogSoftmax pa = log_softmax(la), pb = log_softmax(lb);
            double kl = 0;
            for (size_t t = 0; t < la.size(); ++t)
                kl += std::exp(pa.of(la[t])) * (pa.of(la[t]) - pb.of(lb[t]));
            EXPECT_NEAR(kl, d.kl_values[n], 1e-4 + 1e-3 * kl);
            sum += kl;
            same += pa.best == pb.best;
        }
    EXPECT_NEAR(d.kl.mean(), sum / static_cast<double>(n), 1e-4);
    EXPECT_EQ(d.n_same_best, same);
    EXPECT_NEAR(d.loss_difference.mean(), m.result.loss.mean() - first.result.loss.mean(), 1e-12);
    EXPECT_GT(d.kl.mean(), 1e-4);
    EXPECT_LE(d.kl_quantile(0.5), d.kl_quantile(0.99));
    EXPECT_LE(d.kl_quantile(0.99), d.kl_quantile(1));
}

TEST_F(PerplexityTest, OtherTokensAndVocabulariesAreRefused) {
    save(q8, 1);
    auto reader = std::move(*LogitsReader::open(saved));
    PerplexityRun run{.tokens = text, .windows = windows, .bos = 1};
    EXPECT_TRUE(check_comparable(*reader, saved, run, 512));
    const auto refused = [&](const std::string& words, uint32_t n_vocab = 512) {
        const Status status = check_comparable(*reader, saved, run, n_vocab);
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().kind, ErrorKind::invalid);
        EXPECT_NE(status.error().text.find(words), std::string::npos) << status.error().text;
    };
    refused("a vocabulary of 512 tokens, this model has 32000", 32000);
    run.bos = kNoBos;
    refused("beginning-of-text");
    run.bos = 1;
    text[70] ^= 1;
    refused("from token 70 on");
    text[70] ^= 1;
    run.tokens = std::span(text).first(100);
    refused("384 of them, this text has 100");
}

TEST_F(PerplexityTest, WhatIsCancelledKeepsWhatWasScored) {
    auto engine = open(q8);
    std::atomic<bool> cancel = false;
    PerplexityRun run;
    run.cancel = &cancel;
    run.progress = [&](const PerplexityResult& r) { cancel = r.n_windows_done == 2; };
    const Measured m = measure(*engine, run);
    ASSERT_FALSE(m.status);
    EXPECT_EQ(m.status.error().kind, ErrorKind::cancelled);
    EXPECT_GE(m.result.n_windows_done, 2u);
    EXPECT_LT(m.result.n_windows_done, 6u);
    EXPECT_GE(m.result.loss.n(), 2u * windows.n_scored_each());
}

TEST_F(PerplexityTest, ADamagedFileEndsTheComparison) {
    save(q8);
    std::string bytes = testing::read_text(saved);
    bytes[bytes.size() / 2] ^= 1;
    testing::write_text(saved, bytes);
    const Measured m = compare(q8);
    ASSERT_FALSE(m.status);
    EXPECT_EQ(m.status.error().kind, ErrorKind::corrupt);
}

TEST(Sample, MeanAndStandardError) {
    Sample s;
    EXPECT_EQ(s.error(), 0);
    s.add(5);
    EXPECT_EQ(s.mean(), 5);
    EXPECT_EQ(s.error(), 0);
    s.add(7);
    s.add(9);
    EXPECT_DOUBLE_EQ(s.mean(), 7);
    EXPECT_DOUBLE_EQ(s.error(), std::sqrt(8.0 / 3 / 2));
}

TEST(Divergence, Quantiles) {
    Divergence d;
    d.kl_values = {4, 1, 3, 2};
    EXPECT_DOUBLE_EQ(d.kl_quantile(0.5), 2.5);
    EXPECT_DOUBLE_EQ(d.kl_quantile(1), 4);
    EXPECT_DOUBLE_EQ(d.kl_quantile(0), 1);
    d.kl_values = {7};
    EXPECT_DOUBLE_EQ(d.kl_quantile(0.99), 7);
}

}  // namespace
}  // namespace picolm
