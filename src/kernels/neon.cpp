// AArch64 without dot products (ARMv8.0: Cortex-A53, A72): quantised matrices by widening
// multiplies. Products stay in int16 as long as they provably fit, and sums are folded pairwise
// there before they are widened. An activation is -127..127; the comments give the largest sums.
#include <arm_neon.h>

#include <cstring>

#include "kernels/blocks.h"
#include "kernels/half.h"
#include "kernels/levels.h"

namespace picolm {
namespace {

#include "kernels/neon_common.inc"
#include "kernels/neon_formats.inc"
#include "kernels/neon_large.inc"
#include "kernels/neon_small.inc"

// Four sums at once, so that none waits for the product just before it. 16 products each, two to a
// lane: at most 2 * 128 * 127 = 32512.
PICOLM_INLINE void multiply(Words sum[4], Bytes w0, Bytes w1, Bytes w2, Bytes w3, Bytes x0,
                            Bytes x1, Bytes x2, Bytes x3) {
    sum[0] = vmull_s8(vget_low_s8(w0), vget_low_s8(x0));
    sum[1] = vmull_s8(vget_low_s8(w1), vget_low_s8(x1));
    sum[2] = vmull_s8(vget_low_s8(w2), vget_low_s8(x2));
    sum[3] = vmull_s8(vget_low_s8(w3), vget_low_s8(x3));
    sum[0] = vmlal_high_s8(sum[0], w0, x0);
    sum[1] = vmlal_high_s8(sum[1], w1, x1);
    sum[2] = vmlal_high_s8(sum[2], w2, x2);
    sum[3] = vmlal_high_s8(sum[3], w3, x3);
}
// 16 products more, four to a lane: at most 4 * 32 * 127 = 16256.
PICOLM_INLINE void multiply_more(Words sum[4], Bytes w0, Bytes w1, Bytes w2, Bytes w3, Bytes x0,
                                 Bytes x1, Bytes x2, Bytes x3) {
    sum[0] = vmlal_s8(sum[0], vget_low_s8(w0), vget_low_s8(x0));
    sum[1] = vmlal_s8(sum[1], vget_low_s8(w1), vget_low_s8(x1));
    sum[2] = vmlal_s8(sum[2], vget_low_s8(w2), vget_low_s8(x2));
    sum[3] = vmlal_s8(sum[3], vget_low_s8(w3), vget_low_s8(x3));
    sum[0] = vmlal_high_s8(sum[0], w0, x0);
    sum[1] = vmlal_high_s8(sum[1], w1, x1);
    sum[2] = vmlal_high_s8(sum[2], w2, x2);
    sum[3] = vmlal_high_s8(sum[3], w3, x3);
}

// a and b: two vectors each of two rows; x and y: what they meet. Sums of 32 products, [row][a, b].
PICOLM_INLINE void narrow32(Words sum[4], const Bytes* a, const Bytes* b, int second,
                            const Bytes* x, const Bytes* y) {
    multiply(sum, a[0], a[second], b[0], b[second], x[0], y[0], x[0], y[0]);
    multiply_more(sum, a[1], a[second + 1], b[1], b[second + 1], x[1], y[1], x[1], y[1]);
}
// The same for wide weights: eight products to a lane.
PICOLM_INLINE void wide32(Ints sum[4], const Bytes* a, const Bytes* b, int second, const Bytes* x,
                          const Bytes* y) {
    Words p[4], q[4];
    multiply(p, a[0], a[second], b[0], b[second], x[0], y[0], x[0], y[0]);
    multiply(q, a[1], a[second + 1], b[1], b[second + 1], x[1], y[1], x[1], y[1]);
    for (int i = 0; i < 4; ++i) sum[i] = vpaddlq_s16(p[i]);
    for (int i = 0; i < 4; ++i) sum[i] = vpadalq_s16(sum[i], q[i]);
}
template <int kHalf>
PICOLM_INLINE Ints widen_half(Words v) {
    return kHalf ? vmovl_high_s16(v) : vmovl_s16(vget_low_s16(v));
}

struct WideningDot {
    template <class Format, int kChunk>
    PICOLM_INLINE static void add(Ints sum[2], const Bytes w[2][4], const Bytes x[4],
                                  const Words (*scale)[2]) {
        constexpr int k_lane = 2 * kChunk % 8;
        if constexpr (Format::kWide) {
            Ints p[4];
            wide32(p, w[0], w[1], 2, x, x + 2);
            for (int r = 0; r < 2; ++r) {
                const Ints factor = widen_half<kChunk / 2>(scale[r][0]);
                sum[r] = vmlaq_laneq_s32(sum[r], p[2 * r], factor, k_lane % 4);
                sum[r] = vmlaq_laneq_s32(sum[r], p[2 * r + 1], factor, (k_lane + 1) % 4);
            }
        } else if constexpr (Format::kSub == 32) {
            // Eight products to a lane: at most 8 * 31 * 127 = 31496.
            Words p[4];
            narrow32(p, w[0], w[1], 2, x, x + 2);
            const Words v[2] = {vpaddq_s16(p[0], p[1]), vpaddq_s16(p[2], p[3])};
            for (int r = 0; r < 2; ++r)
                sum[r] = vmlal_laneq_s16(sum[r], vget_low_s16(v[r]), scale[r][0], k_lane);
            for (int r = 0; r < 2; ++r)
                sum[r] = vmlal_high_laneq_s16(sum[r], v[r], scale[r][0], k_lane + 1);
        } else {
            // Eight products to a lane, two lanes to a scale: at most 8 * 32 * 127 = 32512.
            Words p[2][4], v[2], twice[2];
            for (int r = 0; r < 2; ++r)
                multiply(p[r], w[r][0], w[r][1], w[r][2], w[r][3], x[0], x[1], x[2], x[3]);
            for (int r = 0; r < 2; ++r) {
                p[r][0] = vpaddq_s16(p[r][0], p[r][1]);
                p[r][2] = vpaddq_s16(p[r][2], p[r][3]);
                const Words s = scale[r][kChunk / 2];
                twice[r] = kChunk % 2 ? vtrn2q_s16(s, s) : vtrn1q_s16(s, s);
            }
            for (int r = 0; r < 2; ++r) v[r] = vpaddq_s16(p[r][0], p[r][2]);
            for (int r = 0; r < 2; ++r)
                sum[r] = vmlal_s16(sum[r], vget_low_s16(v[r]), vget_low_s16(twice[r]));
            for (int r = 0; r < 2; ++r) sum[r] = vmlal_high_s16(sum[r], v[r], twice[r]);
        }
    }
    template <bool kWide>
    PICOLM_INLINE static void pair(Ints out[2], const Bytes w[2][4], const Bytes x[4]) {
        if constexpr (kWide) {
            Ints p[4];
            wide32(p, w[0], w[1], 2, x, x + 2);
            for (int r = 0; r < 2; ++r) out[r] = vpaddq_s32(p[2 * r], p[2 * r + 1]);
        } else {
            Words p[4];
            narrow32(p, w[0], w[1], 2, x, x + 2);
            for (int r = 0; r < 2; ++r)
                out[r] = vreinterpretq_s32_s16(vpaddq_s16(p[2 * r], p[2 * r + 1]));
        }
    }
    // Sixteen products to a lane before they are widened: at most 16 * 16 * 127 = 32512.
    template <bool kWide>
    PICOLM_INLINE static Ints join(Ints a, Ints b) {
        if constexpr (kWide)
            return vpaddq_s32(a, b);
        else
            return vpaddlq_s16(vpaddq_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b)));
    }
};

// Lanes run along the row; the sums of four tokens are folded together, so that they end side by
// side.
struct WideningGemm {
    static constexpr int kTokens = 4, kGroup = 16;
    static constexpr int kMaxTop = 16;  // sixteen products to a lane, as in join; unsigned 15 fits

    PICOLM_INLINE static void store(int8_t* q, uint32_t row, int at, Bytes v) {
        vst1q_s8(q + row * kQK + at, v);
    }
    // kSub elements of four rows and of four tokens: two lanes per token.
    template <int kSub>
    PICOLM_INLINE static void products(const int8_t* q, const int8_t* x, Words out[4]) {
        constexpr int kParts = kSub / 16;
        Bytes w[4][kParts];
        for (int r = 0; r < 4; ++r)
            for (int i = 0; i < kParts; ++i) w[r][i] = load(q + r * kQK + 16 * i);
        Words pair[4][2];
        repeat<2>([&](auto p) PICOLM_LAMBDA {
            constexpr int k_pair = decltype(p)::value;
            Bytes even[kParts], odd[kParts];
            for (int i = 0; i < kParts; ++i) {
                even[i] = load(x + 64 * i + 32 * k_pair);
                odd[i] = load(x + 64 * i + 32 * k_pair + 16);
            }
            for (int r = 0; r < 4; r += 2) {
                Words sum[4];
                if constexpr (kSub == 32)
                    narrow32(sum, w[r], w[r + 1], 0, even, odd);
                else
                    multiply(sum, w[r][0], w[r][0], w[r + 1][0], w[r + 1][0], even[0], odd[0],
                             even[0], odd[0]);
                pair[r][k_pair] = vpaddq_s16(sum[0], sum[1]);
                pair[r + 1][k_pair] = vpaddq_s16(sum[2], sum[3]);
            }
        });
        for (int r = 0; r < 4; ++r) out[r] = vpaddq_s16(pair[r][0], pair[r][1]);
    }
    // 32 wide elements: a lane per token.
    PICOLM_INLINE static void wide_products(const int8_t* q, const int8_t* x, Ints out[4]) {
        Bytes w[4][2];
        for (int r = 0; r < 4; ++r)
            for (int i = 0; i < 2; ++i) w[r][i] = load(q + r * kQK + 16 * i);
        Ints pair[4][2];
        repeat<2>([&](auto p) PICOLM_LAMBDA {
            constexpr int k_pair = decltype(p)::value;
            const int8_t* in = x + 32 * k_pair;
            const Bytes even[2] = {load(in), load(in + 64)};
            const Bytes odd[2] = {load(in + 16), load(in + 80)};
            for (int r = 0; r < 4; r += 2) {
                Ints sum[4];
                wide32(sum, w[r], w[r + 1], 0, even, odd);
                pair[r][k_pair] = vpaddq_s32(sum[0], sum[1]);
                pair[r + 1][k_pair] = vpaddq_s32(sum[2], sum[3]);
            }
        });
        for (int r = 0; r < 4; ++r) out[r] = vpaddq_s32(pair[r][0], pair[r][1]);
    }

    template <class Format, int kRows>
    PICOLM_INLINE static void dot256(const int8_t* q, const int8_t* x,
                                     const int16_t (*scale)[kRows], Ints (*sum)[1]) {
        constexpr int kSub = Format::kSub;
        Ints part[4][2];
        for (int r = 0; r < 4; ++r) part[r][0] = part[r][1] = zero();
        for (int s = 0; s < kQK / kSub; ++s) {
            const int16x4_t factor = vld1_s16(scale[s]);
            if constexpr (Format::kWide) {
                Ints v[4];
                wide_products(q + kSub * s, x + 4 * kSub * s, v);
                const Ints wide_factor = vmovl_s16(factor);
                repeat<4>([&](auto r) PICOLM_LAMBDA {
                    constexpr int k_row = decltype(r)::value;
                    part[k_row][0] = vmlaq_laneq_s32(part[k_row][0], v[k_row], wide_factor, k_row);
                });
            } else {
                Words v[4];
                products<kSub>(q + kSub * s, x + 4 * kSub * s, v);
                repeat<4>([&](auto r) PICOLM_LAMBDA {
                    constexpr int k_row = decltype(r)::value;
                    part[k_row][0] =
                        vmlal_lane_s16(part[k_row][0], vget_low_s16(v[k_row]), factor, k_row);
                    part[k_row][1] = vmlal_high_lane_s16(part[k_row][1], v[k_row], factor, k_row);
                });
            }
        }
        for (int r = 0; r < 4; ++r)
            sum[r][0] = Format::kWide ? part[r][0] : vpaddq_s32(part[r][0], part[r][1]);
    }
    template <bool kWide>
    PICOLM_INLINE static void dot32(const int8_t* q, const int8_t* x, uint32_t g, Ints (*sum)[1]) {
        if constexpr (kWide) {
            Ints v[4];
            wide_products(q + 32 * g, x, v);
            for (int r = 0; r < 4; ++r) sum[r][0] = v[r];
        } else {
            Words v[4];
            products<32>(q + 32 * g, x, v);
            for (int r = 0; r < 4; ++r) sum[r][0] = vpaddlq_s16(v[r]);
        }
    }
};

}  // namespace

void fill_neon(Kernels& table) {
    fill_neon_operators(table);
    fill_small<WideningDot>(table);
    fill_large<WideningGemm>(table.large);
}

}  // namespace picolm
