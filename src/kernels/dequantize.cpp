// dequantize_row: the meaning of every block format as float arithmetic, in one written order (the
// one in the comments of kernels/blocks.h). Plain and scalar on purpose: it is what the fast
// kernels are compared with.
#include <cstring>

#include "kernels/blocks.h"
#include "kernels/half.h"
#include "kernels/quantize.h"

namespace picolm {
namespace {

int low_nibble(uint8_t byte) {
    return byte & 15;
}

int high_nibble(uint8_t byte) {
    return byte >> 4;
}

// Bit e of four bytes read as a little-endian number, as 0 or 16.
int fifth_bit(const uint8_t qh[4], int e) {
    return ((qh[e / 8] >> (e % 8)) & 1) << 4;
}

void dequantize(const BlockQ4_0& b, float* x) {
    const float d = f16_to_f32(b.d);
    for (int i = 0; i < 16; ++i) {
        x[i] = d * static_cast<float>(low_nibble(b.qs[i]) - 8);
        x[i + 16] = d * static_cast<float>(high_nibble(b.qs[i]) - 8);
    }
}

void dequantize(const BlockQ4_1& b, float* x) {
    const float d = f16_to_f32(b.d);
    const float m = f16_to_f32(b.m);
    for (int i = 0; i < 16; ++i) {
        x[i] = d * static_cast<float>(low_nibble(b.qs[i])) + m;
        x[i + 16] = d * static_cast<float>(high_nibble(b.qs[i])) + m;
    }
}

void dequantize(const BlockQ5_0& b, float* x) {
    const float d = f16_to_f32(b.d);
    for (int i = 0; i < 16; ++i) {
        x[i] = d * static_cast<float>((low_nibble(b.qs[i]) | fifth_bit(b.qh, i)) - 16);
        x[i + 16] = d * static_cast<float>((high_nibble(b.qs[i]) | fifth_bit(b.qh, i + 16)) - 16);
    }
}

void dequantize(const BlockQ5_1& b, float* x) {
    const float d = f16_to_f32(b.d);
    const float m = f16_to_f32(b.m);
    for (int i = 0; i < 16; ++i) {
        x[i] = d * static_cast<float>(low_nibble(b.qs[i]) | fifth_bit(b.qh, i)) + m;
        x[i + 16] = d * static_cast<float>(high_nibble(b.qs[i]) | fifth_bit(b.qh, i + 16)) + m;
    }
}

void dequantize(const BlockQ8_0& b, float* x) {
    const float d = f16_to_f32(b.d);
    for (int i = 0; i < kQK32; ++i) x[i] = d * static_cast<float>(b.qs[i]);
}

void dequantize(const BlockQ2_K& b, float* x) {
    const float d = f16_to_f32(b.d);
    const float dmin = f16_to_f32(b.dmin);
    for (int s = 0; s < kQK / 16; ++s) {
        const float scale = d * static_cast<float>(low_nibble(b.scales[s]));
        const float min = dmin * static_cast<float>(high_nibble(b.scales[s]));
        const int shift = s / 2 % 4 * 2;
        const uint8_t* qs = b.qs + s / 8 * 32 + s % 2 * 16;
        for (int i = 0; i < 16; ++i)
            x[16 * s + i] = scale * static_cast<float>((qs[i] >> shift) & 3) - min;
    }
}

void dequantize(const BlockQ3_K& b, float* x) {
    const float d = f16_to_f32(b.d);
    int8_t scales[kQK / 16];
    unpack_q3_k_scales(b.scales, scales);
    for (int s = 0; s < kQK / 16; ++s) {
        const float scale = d * static_cast<float>(scales[s]);
        const int shift = s / 2 % 4 * 2;
        const uint8_t* qs = b.qs + s / 8 * 32 + s % 2 * 16;
        const uint8_t* hmask = b.hmask + s % 2 * 16;
        for (int i = 0; i < 16; ++i) {
            const int high = ((hmask[i] >> (s / 2)) & 1) << 2;
            const int q = ((qs[i] >> shift) & 3) | high;
            x[16 * s + i] = scale * static_cast<float>(q - 4);
        }
    }
}

void dequantize(const BlockQ4_K& b, float* x) {
    const float d = f16_to_f32(b.d);
    const float dmin = f16_to_f32(b.dmin);
    uint8_t scales[kQK / 32], mins[kQK / 32];
    unpack_q4_k_scales(b.scales, scales, mins);
    for (int s = 0; s < kQK / 32; ++s) {
        const float scale = d * static_cast<float>(scales[s]);
        const float min = dmin * static_cast<float>(mins[s]);
        const int shift = s % 2 * 4;
        const uint8_t* qs = b.qs + s / 2 * 32;
        for (int i = 0; i < 32; ++i)
            x[32 * s + i] = scale * static_cast<float>((qs[i] >> shift) & 15) - min;
    }
}

void dequantize(const BlockQ5_K& b, float* x) {
    const float d = f16_to_f32(b.d);
    const float dmin = f16_to_f32(b.dmin);
    uint8_t scales[kQK / 32], mins[kQK / 32];
    unpack_q4_k_scales(b.scales, scales, mins);
    for (int s = 0; s < kQK / 32; ++s) {
        const float scale = d * static_cast<float>(scales[s]);
        const float min = dmin * static_cast<float>(mins[s]);
        const int shift = s % 2 * 4;
        const uint8_t* qs = b.qs + s / 2 * 32;
        for (int i = 0; i < 32; ++i) {
            const int high = ((b.qh[i] >> s) & 1) << 4;
            const int q = ((qs[i] >> shift) & 15) | high;
            x[32 * s + i] = scale * static_cast<float>(q) - min;
        }
    }
}

void dequantize(const BlockQ6_K& b, float* x) {
    const float d = f16_to_f32(b.d);
    for (int s = 0; s < kQK / 16; ++s) {
        const float scale = d * static_cast<float>(b.scales[s]);
        const int k = s / 2 % 4;
        const uint8_t* ql = b.ql + s / 8 * 64 + k % 2 * 32 + s % 2 * 16;
        const uint8_t* qh = b.qh + s / 8 * 32 + s % 2 * 16;
        for (int i = 0; i < 16; ++i) {
            const int low = (ql[i] >> (k / 2 * 4)) & 15;
            const int high = (qh[i] >> (2 * k)) & 3;
            x[16 * s + i] = scale * static_cast<float>((low | (high << 4)) - 32);
        }
    }
}

void dequantize_levels(float scale, const uint8_t qs[kQK32 / 2], float* x) {
    for (int i = 0; i < 16; ++i) {
        x[i] = scale * static_cast<float>(kIq4Levels[low_nibble(qs[i])]);
        x[i + 16] = scale * static_cast<float>(kIq4Levels[high_nibble(qs[i])]);
    }
}

void dequantize(const BlockIQ4_NL& b, float* x) {
    dequantize_levels(f16_to_f32(b.d), b.qs, x);
}

void dequantize(const BlockIQ4_XS& b, float* x) {
    const float d = f16_to_f32(b.d);
    int8_t scales[kQK / 32];
    unpack_iq4_xs_scales(b.scales_h, b.scales_l, scales);
    for (int s = 0; s < kQK / 32; ++s)
        dequantize_levels(d * static_cast<float>(scales[s]), b.qs + 16 * s, x + 32 * s);
}

// Blocks are copied out, so that a row may lie at any address.
template <typename Block, int kElements>
void dequantize_blocks(const void* row, float* x, size_t n) {
    const uint8_t* from = static_cast<const uint8_t*>(row);
    for (size_t i = 0; i < n; i += kElements, from += sizeof(Block)) {
        Block block;
        std::memcpy(&block, from, sizeof block);
        dequantize(block, x + i);
    }
}

template <float (*kConvert)(uint16_t)>
void convert_halves(const void* row, float* x, size_t n) {
    const uint8_t* from = static_cast<const uint8_t*>(row);
    for (size_t i = 0; i < n; ++i) {
        uint16_t half;
        std::memcpy(&half, from + 2 * i, sizeof half);
        x[i] = kConvert(half);
    }
}

}  // namespace

void dequantize_row(TensorType type, const void* row, float* x, size_t n) {
    switch (type) {
        case TensorType::f32:
            if (n > 0) std::memcpy(x, row, n * sizeof *x);
            return;
        case TensorType::f16:
            return convert_halves<f16_to_f32>(row, x, n);
        case TensorType::bf16:
            return convert_halves<bf16_to_f32>(row, x, n);
        case TensorType::q4_0:
            return dequantize_blocks<BlockQ4_0, kQK32>(row, x, n);
        case TensorType::q4_1:
            return dequantize_blocks<BlockQ4_1, kQK32>(row, x, n);
        case TensorType::q5_0:
            return dequantize_blocks<BlockQ5_0, kQK32>(row, x, n);
        case TensorType::q5_1:
            return dequantize_blocks<BlockQ5_1, kQK32>(row, x, n);
        case TensorType::q8_0:
            return dequantize_blocks<BlockQ8_0, kQK32>(row, x, n);
        case TensorType::q2_k:
            return dequantize_blocks<BlockQ2_K, kQK>(row, x, n);
        case TensorType::q3_k:
            return dequantize_blocks<BlockQ3_K, kQK>(row, x, n);
        case TensorType::q4_k:
            return dequantize_blocks<BlockQ4_K, kQK>(row, x, n);
        case TensorType::q5_k:
            return dequantize_blocks<BlockQ5_K, kQK>(row, x, n);
        case TensorType::q6_k:
            return dequantize_blocks<BlockQ6_K, kQK>(row, x, n);
        case TensorType::iq4_nl:
            return dequantize_blocks<BlockIQ4_NL, kQK32>(row, x, n);
        case TensorType::iq4_xs:
            return dequantize_blocks<BlockIQ4_XS, kQK>(row, x, n);
    }
}

}  // namespace picolm
