#include "base/math.h"

#include <gtest/gtest.h>

#include <cmath>

namespace picolm {
namespace {

TEST(MathTest, ExpF32) {
    EXPECT_EQ(exp_f32(0.0f), 1.0f);
    EXPECT_EQ(exp_f32(-67.0f), 0.0f);
    EXPECT_EQ(exp_f32(-INFINITY), 0.0f);
    double worst = 0;
    for (double x = -66.5; x < 88; x += 0.000731) {
        const float f = static_cast<float>(x);
        const double want = std::exp(static_cast<double>(f));
        worst = std::max(worst, std::fabs(exp_f32(f) - want) / want);
    }
    EXPECT_LT(worst, 1.3e-7);
}

TEST(MathTest, ExpLogPowF64) {
    EXPECT_EQ(exp_f64(0.0), 1.0);
    EXPECT_EQ(log_f64(1.0), 0.0);
    for (double x = -700; x < 700; x += 0.3711) {
        EXPECT_NEAR(exp_f64(x) / std::exp(x), 1.0, 1e-15) << x;
        const double y = std::exp(x);
        EXPECT_NEAR(log_f64(y), std::log(y), 1e-15 * std::fabs(x) + 1e-16) << x;
    }
    for (int i = 0; i < 64; ++i)
        EXPECT_NEAR(pow_f64(500000.0, -i / 64.0) / std::pow(500000.0, -i / 64.0), 1.0, 4e-15);
}

TEST(MathTest, SinCosTo2Pow20) {
    for (double x = 0; x <= 1048576.0; x += 77.3137) {
        const SinCos got = sincos_f64(x);
        EXPECT_NEAR(got.sin, std::sin(x), 1e-15) << x;
        EXPECT_NEAR(got.cos, std::cos(x), 1e-15) << x;
    }
}

}  // namespace
}  // namespace picolm
