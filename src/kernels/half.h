// Half precision (IEEE 754 binary16) and bfloat16 to and from float, in integer arithmetic and one
// exact product of normal numbers, so that no compiler flag, rounding mode or flush-to-zero setting
// can change a bit. Equal to F16C and NEON for everything that is not a NaN. Functions are static:
// ISA files include this header.
#pragma once

#include <cstdint>

namespace picolm {

static constexpr float bits_to_f32(uint32_t bits) {
    return __builtin_bit_cast(float, bits);
}
static constexpr uint32_t f32_to_bits(float value) {
    return __builtin_bit_cast(uint32_t, value);
}

// A NaN keeps its sign and payload and becomes quiet. Cases are chosen by masks (the sign of a
// difference, spread over the word): without branches a compiler vectorises loops around it.
static constexpr float f16_to_f32(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const int32_t magnitude = half & 0x7fff;
    const auto is_subnormal = static_cast<uint32_t>((magnitude - 0x0400) >> 31);
    const auto is_special = static_cast<uint32_t>((0x7bff - magnitude) >> 31);
    const auto is_nan = static_cast<uint32_t>((0x7c00 - magnitude) >> 31);
    // magnitude * 2^-24: exact, and zero or a normal float.
    const uint32_t subnormal = f32_to_bits(static_cast<float>(magnitude) * 0x1p-24f);
    const uint32_t offset = 0x38000000u + (is_special & 0x38000000u);
    const uint32_t normal = (static_cast<uint32_t>(magnitude) << 13) + offset;
    return bits_to_f32(sign | (is_subnormal & subnormal) | (~is_subnormal & normal) |
                       (is_nan & 0x00400000u));
}

// Rounds to nearest, ties to even; from 65520 on to infinity. A NaN keeps its sign and the top of
// its payload and becomes quiet.
static constexpr uint16_t f32_to_f16(float value) {
    const uint32_t bits = f32_to_bits(value);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t half = 0;
    if (magnitude > 0x7f800000u) {
        half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    } else if (magnitude >= 0x47800000u) {  // 2^16 and above
        half = 0x7c00u;
    } else if (magnitude >= 0x38800000u) {  // 2^-14, the smallest normal half
        // A carry out of the mantissa steps the exponent, up to infinity: the encoding is ordered.
        half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1)) >> 13;
    } else if (magnitude > 0x33000000u) {  // 2^-25, half of the smallest subnormal, ties to zero
        const uint32_t shift = 126 - (magnitude >> 23);
        const uint32_t mantissa = (magnitude & 0x007fffffu) | 0x00800000u;
        half = (mantissa + (1u << (shift - 1)) - 1 + ((mantissa >> shift) & 1)) >> shift;
    }
    return static_cast<uint16_t>(sign | half);
}

static constexpr float bf16_to_f32(uint16_t brain) {
    return bits_to_f32(static_cast<uint32_t>(brain) << 16);
}

// Rounds to nearest, ties to even; subnormals are kept. A NaN becomes quiet.
static constexpr uint16_t f32_to_bf16(float value) {
    const uint32_t bits = f32_to_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x0040u);
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

}  // namespace picolm
