// Elementary functions that give the same bits on every machine: only + - * / and integer
// operations on the exponent, no libm, no contraction. docs/NUMERICS.md states the errors.
#pragma once

namespace picolm {

// e^x. Within 1 ulp of the true value for normal results. exp(0) is exactly 1; results below 2^-96
// are 0; x above 88 counts as 88. This is the specification of the vector versions in src/kernels.
float exp_f32(float x);

// Relative error below 1e-15 on normal results. exp_f64: x <= -708 gives 0, x above 709 counts as
// 709. log_f64: REQUIRES x > 0 and normal.
double exp_f64(double x);
double log_f64(double x);
// x^y for x > 0.
double pow_f64(double x, double y);

struct SinCos {
    double sin;
    double cos;
};
// Absolute error below 1e-15 for 0 <= x <= 2^20 (Cody-Waite reduction in three parts).
SinCos sincos_f64(double x);

// Constants shared with the vector versions of exp_f32. ln 2 is split so that n * kLn2High is
// exact.
namespace exp_f32_constants {
inline constexpr float kLowest = -66.542129f;  // ln(2^-96): below it the result is 0
inline constexpr float kHighest = 88.0f;
inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding and subtracting rounds to even
inline constexpr float kLn2High = 0.693359375f;
inline constexpr float kLn2Low = -2.12194440e-4f;
// 1/2! .. 1/7!
inline constexpr float kC2 = 0.5f;
inline constexpr float kC3 = 1.66666667e-1f;
inline constexpr float kC4 = 4.16666667e-2f;
inline constexpr float kC5 = 8.33333333e-3f;
inline constexpr float kC6 = 1.38888889e-3f;
inline constexpr float kC7 = 1.98412698e-4f;
}  // namespace exp_f32_constants

}  // namespace picolm
