#include "decode/log_softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace picolm {
namespace {

double reference(const std::vector<float>& logits, size_t token) {
    long double most = logits[0], sum = 0;
    for (const float logit : logits) most = std::max<long double>(most, logit);
    for (const float logit : logits) sum += std::exp(logit - most);
    return static_cast<double>(logits[token] - most - std::log(sum));
}

TEST(LogSoftmax, IsTheLogarithmOfTheSoftmax) {
    std::mt19937 random(3);
    for (const float spread : {0.0f, 0.01f, 1.0f, 4.0f, 12.0f}) {
        std::normal_distribution<float> normal(17.0f, spread);
        std::vector<float> logits(32000);
        for (float& logit : logits) logit = normal(random);
        const LogSoftmax got = log_softmax(logits);
        double sum = 0;
        for (const float logit : logits) sum += std::exp(got.of(logit));
        for (size_t i = 0; i < logits.size(); i += 1999)
            EXPECT_NEAR(got.of(logits[i]), reference(logits, i), 1e-9) << spread;
        EXPECT_NEAR(sum, 1, 1e-9) << spread;
    }
}

TEST(LogSoftmax, LargeLogitsNeitherOverflowNorVanish) {
    const std::vector<float> logits = {-3e38f, 3e38f, 0};
    const LogSoftmax got = log_softmax(logits);
    EXPECT_EQ(got.best, 1u);
    EXPECT_EQ(got.of(logits[1]), 0);
    EXPECT_NEAR(got.of(logits[0]), -6e38, 1e32);
}

TEST(LogSoftmax, TheFirstOfEqualsIsTheBest) {
    EXPECT_EQ(log_softmax(std::vector<float>{1, 5, 5, 2}).best, 1u);
    EXPECT_EQ(log_softmax(std::vector<float>{4}).of(4), 0);
}

}  // namespace
}  // namespace picolm
