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

// 16 products, two to a lane: at most 2 * 128 * 127 = 32512.
PICOLM_INLINE Words multiply16(Bytes w, Bytes x) {
    return vmlal_high_s8(vmull_s8(vget_low_s8(w), vget_low_s8(x)), w, x);
}
// 32 products, four to a lane: at most 4 * 32 * 127 = 16256.
PICOLM_INLINE Words multiply32(Bytes w0, Bytes w1, Bytes x0, Bytes x1) {
    const Words sum = multiply16(w0, x0);
    return vmlal_high_s8(vmlal_s8(sum, vget_low_s8(w1), vget_low_s8(x1)), w1, x1);
}
// 32 wide products, eight to a lane.
PICOLM_INLINE Ints wide32(Bytes w0, Bytes w1, Bytes x0, Bytes x1) {
    return vpadalq_s16(vpaddlq_s16(multiply16(w0, x0)), multiply16(w1, x1));
}
template <int kHalf>
PICOLM_INLINE Ints widen_half(Words v) {
    return kHalf ? vmovl_high_s16(v) : vmovl_s16(vget_low_s16(v));
}

struct WideningDot {
    template <class Format, int kChunk>
    PICOLM_INLINE static Ints add(Ints sum, const Bytes w[4], const Bytes x[4],
                                  const Words scale[2]) {
        constexpr int k_lane = 2 * kChunk % 8;
        if constexpr (Format::kWide) {
            const Ints factor = widen_half<kChunk / 2>(scale[0]);
            sum = vmlaq_laneq_s32(sum, wide32(w[0], w[1], x[0], x[1]), factor, k_lane % 4);
            return vmlaq_laneq_s32(sum, wide32(w[2], w[3], x[2], x[3]), factor, (k_lane + 1) % 4);
        } else if constexpr (Format::kSub == 32) {
            // Eight products to a lane: at most 8 * 31 * 127 = 31496.
            const Words v =
                vpaddq_s16(multiply32(w[0], w[1], x[0], x[1]), multiply32(w[2], w[3], x[2], x[3]));
            sum = vmlal_laneq_s16(sum, vget_low_s16(v), scale[0], k_lane);
            return vmlal_high_laneq_s16(sum, v, scale[0], k_lane + 1);
        } else {
            // Eight products to a lane, two lanes to a scale: at most 8 * 32 * 127 = 32512.
            const Words v = vpaddq_s16(vpaddq_s16(multiply16(w[0], x[0]), multiply16(w[1], x[1])),
                                       vpaddq_s16(multiply16(w[2], x[2]), multiply16(w[3], x[3])));
            const Words s = scale[kChunk / 2];
            const Words twice = kChunk % 2 ? vtrn2q_s16(s, s) : vtrn1q_s16(s, s);
            return vmlal_high_s16(vmlal_s16(sum, vget_low_s16(v), vget_low_s16(twice)), v, twice);
        }
    }
    template <bool kWide>
    PICOLM_INLINE static Ints pair(const Bytes w[4], const Bytes x[4]) {
        if constexpr (kWide)
            return vpaddq_s32(wide32(w[0], w[1], x[0], x[1]), wide32(w[2], w[3], x[2], x[3]));
        else
            return vreinterpretq_s32_s16(
                vpaddq_s16(multiply32(w[0], w[1], x[0], x[1]), multiply32(w[2], w[3], x[2], x[3])));
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
        const auto multiply = [](const Bytes* a, const Bytes* b) PICOLM_LAMBDA {
            if constexpr (kSub == 32)
                return multiply32(a[0], a[1], b[0], b[1]);
            else
                return multiply16(a[0], b[0]);
        };
        Words pair[4][2];
        repeat<2>([&](auto p) PICOLM_LAMBDA {
            constexpr int k_pair = decltype(p)::value;
            Bytes even[kParts], odd[kParts];
            for (int i = 0; i < kParts; ++i) {
                even[i] = load(x + 64 * i + 32 * k_pair);
                odd[i] = load(x + 64 * i + 32 * k_pair + 16);
            }
            for (int r = 0; r < 4; ++r)
                pair[r][k_pair] = vpaddq_s16(multiply(w[r], even), multiply(w[r], odd));
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
            const Bytes even0 = load(in), even1 = load(in + 64);
            const Bytes odd0 = load(in + 16), odd1 = load(in + 80);
            for (int r = 0; r < 4; ++r)
                pair[r][k_pair] = vpaddq_s32(wide32(w[r][0], w[r][1], even0, even1),
                                             wide32(w[r][0], w[r][1], odd0, odd1));
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
