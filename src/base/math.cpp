#include "base/math.h"

#include <bit>
#include <cstdint>

namespace picolm {

float exp_f32(float x) {
    using namespace exp_f32_constants;
    if (!(x >= kLowest)) return 0.0f;
    if (x > kHighest) x = kHighest;
    const float n = (x * kLog2E + kRound) - kRound;
    const float r = (x - n * kLn2High) - n * kLn2Low;
    float p = kC7;
    p = p * r + kC6;
    p = p * r + kC5;
    p = p * r + kC4;
    p = p * r + kC3;
    p = p * r + kC2;
    p = (p * r) * r + r + 1.0f;
    const int32_t exponent = static_cast<int32_t>(n) + 127;
    return p * std::bit_cast<float>(exponent << 23);
}

namespace {

constexpr double kLn2High = 0x1.62e42fee00000p-1;  // the upper 32 bits of ln 2
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kLog2E = 1.44269504088896340736;
constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52

double power_of_two(int64_t n) {  // -1022 <= n <= 1023
    return std::bit_cast<double>((n + 1023) << 52);
}

}  // namespace

double exp_f64(double x) {
    if (!(x > -708.0)) return 0.0;
    if (x > 709.0) x = 709.0;
    const double n = (x * kLog2E + kRound) - kRound;
    const double r = (x - n * kLn2High) - n * kLn2Low;
    double p = 1.0;  // Taylor to r^14, innermost first: 1 + r/1 (1 + r/2 (1 + ...))
    for (int i = 14; i >= 1; --i) p = p * (r / i) + 1.0;
    return p * power_of_two(static_cast<int64_t>(n));
}

double log_f64(double x) {
    const uint64_t bits = std::bit_cast<uint64_t>(x);
    int64_t e = static_cast<int64_t>(bits >> 52) - 1023;
    double m = std::bit_cast<double>((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
    if (m > 1.4142135623730951) {
        m = m * 0.5;
        ++e;
    }
    // ln m = 2 atanh(s), |s| <= 0.1716
    const double s = (m - 1.0) / (m + 1.0);
    const double z = s * s;
    double p = 0.0;
    for (int i = 23; i >= 3; i -= 2) p = (p + 1.0 / i) * z;
    const double n = static_cast<double>(e);
    return n * kLn2High + (n * kLn2Low + 2.0 * (s + s * p));
}

double pow_f64(double x, double y) {
    return exp_f64(y * log_f64(x));
}

SinCos sincos_f64(double x) {
    // pi/2 in three parts of 33 bits, so that n * part is exact for n < 2^20.
    constexpr double kHalfPi1 = 0x1.921fb54400000p+0;
    constexpr double kHalfPi2 = 0x1.0b4611a600000p-34;
    constexpr double kHalfPi3 = 0x1.3198a2e037073p-69;
    const double n = (x * 0.63661977236758134308 + kRound) - kRound;
    const double r = ((x - n * kHalfPi1) - n * kHalfPi2) - n * kHalfPi3;
    const double z = r * r;
    double s = 1.0, c = 1.0;  // Taylor to r^19 and r^20
    for (int i = 18; i >= 2; i -= 2) s = 1.0 - s * (z / (i * (i + 1)));
    for (int i = 19; i >= 1; i -= 2) c = 1.0 - c * (z / (i * (i + 1)));
    s = s * r;
    switch (static_cast<int64_t>(n) & 3) {
        case 0:
            return {s, c};
        case 1:
            return {c, -s};
        case 2:
            return {-s, -c};
        default:
            return {-c, s};
    }
}

}  // namespace picolm
