// The block formats as they lie in a GGUF file (ggml's layouts): one packed little-endian struct
// each, with the place of every element, and the unpacking of the packed 6-bit scales. What the
// numbers mean as floats is kernels/quantize.h. Functions are static: ISA files include this
// header.
//
// In the comments, e is the number of an element inside its block; d, dmin and m are halves.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/tensor_type.h"

namespace picolm {

constexpr int kQK = 256;         // elements of a K block and of IQ4_XS
constexpr int kQK32 = 32;        // elements of the small blocks
constexpr int kScaleBytes = 12;  // packed scales of Q3_K, Q4_K and Q5_K

// x = d * (q - 8). q of e < 16 is the low nibble of qs[e], of e >= 16 the high nibble of qs[e -
// 16].
struct BlockQ4_0 {
    uint16_t d;
    uint8_t qs[kQK32 / 2];
};
static_assert(sizeof(BlockQ4_0) == 18);

// x = d * q + m. Nibbles as in Q4_0.
struct BlockQ4_1 {
    uint16_t d;
    uint16_t m;
    uint8_t qs[kQK32 / 2];
};
static_assert(sizeof(BlockQ4_1) == 20);

// x = d * (q - 16). The low four bits of q as in Q4_0; bit 4 is bit e of qh, read as a
// little-endian 32-bit number.
struct BlockQ5_0 {
    uint16_t d;
    uint8_t qh[4];
    uint8_t qs[kQK32 / 2];
};
static_assert(sizeof(BlockQ5_0) == 22);

// x = d * q + m. Bits as in Q5_0.
struct BlockQ5_1 {
    uint16_t d;
    uint16_t m;
    uint8_t qh[4];
    uint8_t qs[kQK32 / 2];
};
static_assert(sizeof(BlockQ5_1) == 24);

// x = d * qs[e].
struct BlockQ8_0 {
    uint16_t d;
    int8_t qs[kQK32];
};
static_assert(sizeof(BlockQ8_0) == 34);

// x = (d * scale) * q - (dmin * min), for sub-blocks of 16: scales[e / 16] holds the scale in its
// low and the min in its high nibble. With e = 128 * half + 32 * k + l, q is bits 2k and 2k + 1 of
// qs[32 * half + l].
struct BlockQ2_K {
    uint8_t scales[kQK / 16];
    uint8_t qs[kQK / 4];
    uint16_t d;
    uint16_t dmin;
};
static_assert(sizeof(BlockQ2_K) == 84);

// x = (d * scale) * (q - 4), for sub-blocks of 16; scale -32..31, see unpack_q3_k_scales. With
// e = 128 * half + 32 * k + l, the low bits of q are bits 2k and 2k + 1 of qs[32 * half + l], and
// bit 2 of q is bit 4 * half + k of hmask[l].
struct BlockQ3_K {
    uint8_t hmask[kQK / 8];
    uint8_t qs[kQK / 4];
    uint8_t scales[kScaleBytes];
    uint16_t d;
};
static_assert(sizeof(BlockQ3_K) == 110);

// x = (d * scale) * q - (dmin * min), for sub-blocks of 32; see unpack_q4_k_scales. With
// e = 64 * k + l, q is the low nibble of qs[32 * k + l] for l < 32 and the high nibble of
// qs[32 * k + l - 32] for l >= 32.
struct BlockQ4_K {
    uint16_t d;
    uint16_t dmin;
    uint8_t scales[kScaleBytes];
    uint8_t qs[kQK / 2];
};
static_assert(sizeof(BlockQ4_K) == 144);

// As Q4_K, with bit 4 of q in bit e / 32 of qh[e % 32].
struct BlockQ5_K {
    uint16_t d;
    uint16_t dmin;
    uint8_t scales[kScaleBytes];
    uint8_t qh[kQK / 8];
    uint8_t qs[kQK / 2];
};
static_assert(sizeof(BlockQ5_K) == 176);

// x = (d * scales[e / 16]) * (q - 32). With e = 128 * half + 32 * k + l, the low four bits of q are
// a nibble of ql[64 * half + 32 * (k % 2) + l], the low one for k < 2 and the high one for k >= 2;
// bits 4 and 5 of q are bits 2k and 2k + 1 of qh[32 * half + l].
struct BlockQ6_K {
    uint8_t ql[kQK / 2];
    uint8_t qh[kQK / 4];
    int8_t scales[kQK / 16];
    uint16_t d;
};
static_assert(sizeof(BlockQ6_K) == 210);

// The levels of IQ4_NL and IQ4_XS, closer together near zero.
constexpr int8_t kIq4Levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};

// x = d * kIq4Levels[q]. Nibbles as in Q4_0.
struct BlockIQ4_NL {
    uint16_t d;
    uint8_t qs[kQK32 / 2];
};
static_assert(sizeof(BlockIQ4_NL) == 18);

// x = (d * scale) * kIq4Levels[q], for sub-blocks s of 32. scale + 32 has six bits: the low four
// are a nibble of scales_l[s / 2] (low for even s), the high two are bits 2s and 2s + 1 of
// scales_h. The nibbles of sub-block s are qs[16 * s] to qs[16 * s + 15], arranged as in Q4_0.
struct BlockIQ4_XS {
    uint16_t d;
    uint16_t scales_h;
    uint8_t scales_l[kQK / 64];
    uint8_t qs[kQK / 2];
};
static_assert(sizeof(BlockIQ4_XS) == 136);

// Q4_K and Q5_K: the eight scales and eight mins, 0..63. Byte i < 4 of `packed` holds scale i in
// its low six bits and the top of scale i + 4 in its two highest; byte i + 4 the same for the mins;
// byte i + 8 the low nibbles of scale i + 4 and (high nibble) of min i + 4.
static inline void unpack_q4_k_scales(const uint8_t packed[kScaleBytes], uint8_t scales[8],
                                      uint8_t mins[8]) {
    constexpr uint32_t k6 = 0x3f3f3f3f, k4 = 0x0f0f0f0f, k_top = 0x30303030;
    uint32_t in[3];
    std::memcpy(in, packed, sizeof in);
    const uint32_t s[2] = {in[0] & k6, (in[2] & k4) | ((in[0] >> 2) & k_top)};
    const uint32_t m[2] = {in[1] & k6, ((in[2] >> 4) & k4) | ((in[1] >> 2) & k_top)};
    std::memcpy(scales, s, sizeof s);
    std::memcpy(mins, m, sizeof m);
}

// Q3_K: the sixteen scales, -32..31. Stored plus 32: the low nibbles of scales 0..7 and (high
// nibble) 8..15 are in bytes 0..7 of `packed`; bits 4 and 5 of scale i are bits 2 * (i / 4) and up
// of byte 8 + i % 4.
static inline void unpack_q3_k_scales(const uint8_t packed[kScaleBytes], int8_t scales[16]) {
    constexpr uint32_t k4 = 0x0f0f0f0f, k_top = 0x30303030;
    uint32_t in[3];
    std::memcpy(in, packed, sizeof in);
    const uint32_t biased[4] = {
        (in[0] & k4) | ((in[2] << 4) & k_top), (in[1] & k4) | ((in[2] << 2) & k_top),
        ((in[0] >> 4) & k4) | (in[2] & k_top), ((in[1] >> 4) & k4) | ((in[2] >> 2) & k_top)};
    uint32_t out[4];
    for (int i = 0; i < 4; ++i) {
        // Per byte b - 32: below 32 the subtraction sets the top three bits, from 32 on it clears
        // bit 5. Bytes stay below 64, so nothing is carried between them.
        const uint32_t below = ~biased[i] & 0x20202020u;
        out[i] = (biased[i] & ~0x20202020u) | below | (below << 1) | (below << 2);
    }
    std::memcpy(scales, out, sizeof out);
}

// IQ4_XS: the eight scales, -32..31.
static inline void unpack_iq4_xs_scales(uint16_t scales_h, const uint8_t scales_l[kQK / 64],
                                        int8_t scales[8]) {
    for (int s = 0; s < 8; ++s) {
        const int low = (scales_l[s / 2] >> (4 * (s % 2))) & 15;
        const int high = (scales_h >> (2 * s)) & 3;
        scales[s] = static_cast<int8_t>((low | (high << 4)) - 32);
    }
}

}  // namespace picolm
