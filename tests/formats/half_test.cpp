// Half and bfloat16 conversion against an independent definition in double (a table of all halves
// and a nearest-value search), and against the processor where it can convert by itself.
#include "kernels/half.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace picolm {
namespace {

double value_of_half(uint16_t half) {
    const int exponent = (half >> 10) & 31;
    const int fraction = half & 1023;
    const double magnitude = exponent == 0    ? std::ldexp(fraction, -24)
                             : exponent == 31 ? std::numeric_limits<double>::infinity()
                                              : std::ldexp(1024 + fraction, exponent - 25);
    return half & 0x8000 ? -magnitude : magnitude;
}

bool is_nan_half(uint16_t half) {
    return (half & 0x7fff) > 0x7c00;
}

// The nearest half, ties to the even encoding; what lies at or past the middle between 65504 and
// the next power of two is infinity.
uint16_t nearest_half(float value) {
    static const std::vector<double> table = [] {
        std::vector<double> t;
        for (int i = 0; i < 0x7c00; ++i) t.push_back(value_of_half(static_cast<uint16_t>(i)));
        t.push_back(65536.0);
        return t;
    }();
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const double magnitude = std::fabs(static_cast<double>(value));
    if (magnitude >= 65536.0) return static_cast<uint16_t>(sign | 0x7c00);
    const auto above = std::upper_bound(table.begin(), table.end(), magnitude);
    const auto high = static_cast<uint16_t>(above - table.begin());
    const auto low = static_cast<uint16_t>(high - 1);
    const double to_low = magnitude - table[low];
    const double to_high = table[high] - magnitude;
    const bool take_low = to_low < to_high || (to_low == to_high && low % 2 == 0);
    return static_cast<uint16_t>(sign | (take_low ? low : high));
}

uint32_t next_random(uint64_t& state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state >> 32);
}

// Every half, its neighbours among the floats, every middle between two halves and the neighbours
// of that, both signs; then floats with random bits.
std::vector<float> interesting_floats() {
    std::vector<float> values;
    for (uint32_t i = 0; i <= 0x7c00; ++i) {
        const auto half = static_cast<uint16_t>(i);
        const double here = i == 0x7c00 ? 65536.0 : value_of_half(half);
        const double next = i >= 0x7bff ? 65536.0 : value_of_half(static_cast<uint16_t>(i + 1));
        for (const double centre : {here, (here + next) / 2}) {
            const auto f = static_cast<float>(centre);
            for (const float v : {f, std::nextafterf(f, 1e30f), std::nextafterf(f, -1e30f)}) {
                values.push_back(v);
                values.push_back(-v);
            }
        }
    }
    for (const float v :
         {std::numeric_limits<float>::denorm_min(), 0x1p-126f, 0x1p-25f, 0x1p-149f,
          std::numeric_limits<float>::max(), 3e38f, std::numeric_limits<float>::infinity()}) {
        values.push_back(v);
        values.push_back(-v);
    }
    uint64_t state = 1;
    for (int i = 0; i < 500'000; ++i) {
        const float any = bits_to_f32(next_random(state));
        if (!std::isnan(any)) values.push_back(any);
        // An exponent that a half has, so that rounding is met as often as overflow.
        const uint32_t bits = (next_random(state) & 0x807fffff) | (100 + next_random(state) % 45)
                                                                      << 23;
        values.push_back(bits_to_f32(bits));
    }
    return values;
}

TEST(Half, EveryHalfBecomesItsValue) {
    for (uint32_t i = 0; i < 0x10000; ++i) {
        const auto half = static_cast<uint16_t>(i);
        const float value = f16_to_f32(half);
        if (is_nan_half(half)) {
            ASSERT_TRUE(std::isnan(value)) << i;
            ASSERT_NE(f32_to_bits(value) & 0x00400000u, 0u) << i;
            ASSERT_EQ(std::signbit(value), half >= 0x8000) << i;
        } else {
            ASSERT_EQ(static_cast<double>(value), value_of_half(half)) << i;
            ASSERT_EQ(std::signbit(value), half >= 0x8000) << i;
        }
    }
}

TEST(Half, EveryHalfSurvivesTheRoundTrip) {
    for (uint32_t i = 0; i < 0x10000; ++i) {
        const auto half = static_cast<uint16_t>(i);
        const uint16_t expected = is_nan_half(half) ? half | 0x0200 : half;
        ASSERT_EQ(f32_to_f16(f16_to_f32(half)), expected) << i;
    }
}

TEST(Half, RoundsToTheNearestEven) {
    for (const float value : interesting_floats()) {
        const uint16_t expected = std::isinf(value)
                                      ? static_cast<uint16_t>(value < 0 ? 0xfc00 : 0x7c00)
                                      : nearest_half(value);
        ASSERT_EQ(f32_to_f16(value), expected) << std::hexfloat << value;
    }
}

TEST(Half, NanBecomesQuiet) {
    for (const uint32_t bits : {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0xff800001u, 0xffc12345u}) {
        const uint16_t half = f32_to_f16(bits_to_f32(bits));
        EXPECT_TRUE(is_nan_half(half)) << std::hex << bits;
        EXPECT_NE(half & 0x0200, 0) << std::hex << bits;
        EXPECT_EQ(half >> 15, static_cast<int>(bits >> 31)) << std::hex << bits;
    }
}

#if defined(__x86_64__)
__attribute__((target("f16c"))) uint16_t hardware_to_half(float value) {
    const __m128i halves = _mm_cvtps_ph(_mm_set_ss(value), _MM_FROUND_TO_NEAREST_INT);
    return static_cast<uint16_t>(_mm_cvtsi128_si32(halves));
}
__attribute__((target("f16c"))) float hardware_from_half(uint16_t half) {
    return _cvtsh_ss(half);
}
bool hardware_converts() {
    return __builtin_cpu_supports("avx2");  // clang 14 has no name for F16C, which AVX2 implies
}
#elif defined(__aarch64__)
uint16_t hardware_to_half(float value) {
    return __builtin_bit_cast(uint16_t, static_cast<__fp16>(value));
}
float hardware_from_half(uint16_t half) {
    return static_cast<float>(__builtin_bit_cast(__fp16, half));
}
bool hardware_converts() {
    return true;
}
#else
uint16_t hardware_to_half(float) {
    return 0;
}
float hardware_from_half(uint16_t) {
    return 0;
}
bool hardware_converts() {
    return false;
}
#endif

TEST(Half, EqualsTheProcessor) {
    if (!hardware_converts()) GTEST_SKIP() << "this processor has no half conversion";
    for (uint32_t i = 0; i < 0x10000; ++i) {
        const auto half = static_cast<uint16_t>(i);
        if (is_nan_half(half)) continue;
        ASSERT_EQ(f32_to_bits(f16_to_f32(half)), f32_to_bits(hardware_from_half(half))) << i;
    }
    for (const float value : interesting_floats())
        ASSERT_EQ(f32_to_f16(value), hardware_to_half(value)) << std::hexfloat << value;
    // Every 257th float, in encoding order: all exponents, and all low bits in turn.
    for (uint64_t bits = 0; bits < 0x100000000u; bits += 257) {
        const float value = bits_to_f32(static_cast<uint32_t>(bits));
        if (std::isnan(value)) continue;
        ASSERT_EQ(f32_to_f16(value), hardware_to_half(value)) << std::hexfloat << value;
    }
}

TEST(Bfloat, EveryOneSurvivesTheRoundTrip) {
    for (uint32_t i = 0; i < 0x10000; ++i) {
        const auto brain = static_cast<uint16_t>(i);
        const float value = bf16_to_f32(brain);
        ASSERT_EQ(f32_to_bits(value), i << 16);
        const bool nan = (brain & 0x7fff) > 0x7f80;
        ASSERT_EQ(f32_to_bf16(value), nan ? brain | 0x0040 : brain) << i;
    }
}

TEST(Bfloat, RoundsToTheNearestEven) {
    std::vector<uint32_t> low = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    for (uint32_t high = 0; high < 0x7f80; ++high)
        for (const uint32_t l : low) {
            const float value = bits_to_f32(high << 16 | l);
            // The step between neighbours doubles with the exponent, so compare exact distances;
            // the value above the largest bfloat16 is 2^128.
            const double below = bits_to_f32(high << 16);
            const double above =
                high == 0x7f7f ? std::ldexp(1.0, 128) : double{bits_to_f32((high + 1) << 16)};
            const bool up =
                value - below > above - value || (value - below == above - value && high % 2 == 1);
            const uint32_t expected = high + up;
            ASSERT_EQ(f32_to_bf16(value), expected) << std::hexfloat << value;
            ASSERT_EQ(f32_to_bf16(-value), expected | 0x8000) << std::hexfloat << value;
        }
}

TEST(Bfloat, NanStaysNan) {
    for (const uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0x7f80ffffu})
        EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(bits_to_f32(bits))))) << std::hex << bits;
}

}  // namespace
}  // namespace picolm
