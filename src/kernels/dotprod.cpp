// AArch64 with dot products (Cortex-A55, A76): quantised matrices by sdot, which adds four products
// to each int32 lane.
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

template <int kHalf>
PICOLM_INLINE Ints widen_half(Words v) {
    return kHalf ? vmovl_high_s16(v) : vmovl_s16(vget_low_s16(v));
}
PICOLM_INLINE Ints multiply(Bytes w, Bytes x) {
    return vdotq_s32(zero(), w, x);
}
// 32 products each of the halves of w[0], then of w[1]; no sum waits for the one just before it.
PICOLM_INLINE void multiply32(Ints sum[4], const Bytes w[2][4], const Bytes x[4]) {
    for (int i = 0; i < 4; ++i) sum[i] = multiply(w[i / 2][i % 2 * 2], x[i % 2 * 2]);
    for (int i = 0; i < 4; ++i)
        sum[i] = vdotq_s32(sum[i], w[i / 2][i % 2 * 2 + 1], x[i % 2 * 2 + 1]);
}

struct DotDot {
    template <class Format, int kChunk>
    PICOLM_INLINE static void add(Ints sum[2], const Bytes w[2][4], const Bytes x[4],
                                  const Words (*scale)[2]) {
        if constexpr (Format::kSub == 32) {
            constexpr int k_lane = 2 * kChunk % 4;
            Ints p[4];
            multiply32(p, w, x);
            for (int r = 0; r < 2; ++r) {
                const Ints factor = widen_half<kChunk / 2>(scale[r][0]);
                sum[r] = vmlaq_laneq_s32(sum[r], p[2 * r], factor, k_lane);
                sum[r] = vmlaq_laneq_s32(sum[r], p[2 * r + 1], factor, k_lane + 1);
            }
        } else {
            // A lane per sub-block; its scales are every other of eight.
            Ints p[2][4];
            for (int r = 0; r < 2; ++r)
                for (int v = 0; v < 4; ++v) p[r][v] = multiply(w[r][v], x[v]);
            for (int r = 0; r < 2; ++r) {
                p[r][0] = vpaddq_s32(p[r][0], p[r][1]);
                p[r][2] = vpaddq_s32(p[r][2], p[r][3]);
            }
            for (int r = 0; r < 2; ++r) {
                const Ints pairs = vreinterpretq_s32_s16(scale[r][kChunk / 2]);
                const Ints factor =
                    kChunk % 2 ? vshrq_n_s32(pairs, 16) : vshrq_n_s32(vshlq_n_s32(pairs, 16), 16);
                sum[r] = vmlaq_s32(sum[r], vpaddq_s32(p[r][0], p[r][2]), factor);
            }
        }
    }
    template <bool kWide>
    PICOLM_INLINE static void pair(Ints out[2], const Bytes w[2][4], const Bytes x[4]) {
        Ints p[4];
        multiply32(p, w, x);
        for (int r = 0; r < 2; ++r) out[r] = vpaddq_s32(p[2 * r], p[2 * r + 1]);
    }
    template <bool kWide>
    PICOLM_INLINE static Ints join(Ints a, Ints b) {
        return vpaddq_s32(a, b);
    }
};

// A lane is a token: four activations of each of four tokens meet the same four weights.
struct DotGemm {
    static constexpr int kTokens = 8, kGroup = 4, kMaxTop = 127;

    PICOLM_INLINE static void store(int8_t* q, uint32_t row, int at, Bytes v) {
        vst1q_s8(q + row * kQK + at, v);
    }
    template <int kSub>
    PICOLM_INLINE static void products(const int8_t* q, const int8_t* x, Ints (*sum)[2]) {
        for (int r = 0; r < 4; ++r) sum[r][0] = sum[r][1] = zero();
        repeat<kSub / 16>([&](auto part) PICOLM_LAMBDA {
            constexpr int k_at = 16 * decltype(part)::value;
            Bytes w[4];
            for (int r = 0; r < 4; ++r) w[r] = load(q + r * kQK + k_at);
            repeat<4>([&](auto group) PICOLM_LAMBDA {
                constexpr int k_group = decltype(group)::value;
                const int8_t* in = x + kTokens * (k_at + 4 * k_group);
                const Bytes x0 = load(in), x1 = load(in + 16);
                for (int r = 0; r < 4; ++r) {
                    sum[r][0] = vdotq_laneq_s32(sum[r][0], x0, w[r], k_group);
                    sum[r][1] = vdotq_laneq_s32(sum[r][1], x1, w[r], k_group);
                }
            });
        });
    }
    template <class Format, int kRows>
    PICOLM_INLINE static void dot256(const int8_t* q, const int8_t* x,
                                     const int16_t (*scale)[kRows], Ints (*sum)[2]) {
        constexpr int kSub = Format::kSub;
        for (int r = 0; r < 4; ++r) sum[r][0] = sum[r][1] = zero();
        for (int s = 0; s < kQK / kSub; ++s) {
            const Ints factor = vmovl_s16(vld1_s16(scale[s]));
            Ints v[4][2];
            products<kSub>(q + kSub * s, x + kTokens * kSub * s, v);
            repeat<4>([&](auto r) PICOLM_LAMBDA {
                constexpr int k_row = decltype(r)::value;
                for (int i = 0; i < 2; ++i)
                    sum[k_row][i] = vmlaq_laneq_s32(sum[k_row][i], v[k_row][i], factor, k_row);
            });
        }
    }
    template <bool kWide>
    PICOLM_INLINE static void dot32(const int8_t* q, const int8_t* x, uint32_t g, Ints (*sum)[2]) {
        products<32>(q + 32 * g, x, sum);
    }
};

}  // namespace

void fill_dotprod(Kernels& table) {
    fill_small<DotDot>(table);
    fill_large<DotGemm>(table.large);
}

}  // namespace picolm
