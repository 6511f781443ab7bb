// AArch64 with int8 matrix multiplies: large batches by smmla, which adds the products of two rows
// with two tokens, eight elements of each. One token leaves half of it idle: small batches are
// those of dotprod.
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

PICOLM_INLINE Ints low_halves(Ints a, Ints b) {
    return vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}
PICOLM_INLINE Ints high_halves(Ints a, Ints b) {
    return vreinterpretq_s32_s64(vzip2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}

// Lanes of a product: row 0 with tokens 0 and 1, row 1 with them. A panel holds two rows as
// [256 / 8][2][8].
struct MatrixGemm {
    static constexpr int kTokens = 8, kGroup = 8, kMaxTop = 127;

    PICOLM_INLINE static void store(int8_t* q, uint32_t row, int at, Bytes v) {
        int8_t* to = q + row / 2 * 2 * kQK + 2 * at + 8 * (row % 2);
        vst1_s8(to, vget_low_s8(v));
        vst1_s8(to + 16, vget_high_s8(v));
    }
    // kSub elements of two pairs of rows with four pairs of tokens.
    template <int kSub>
    PICOLM_INLINE static void products(const int8_t* q, const int8_t* x, Ints (*sum)[4]) {
        for (int r = 0; r < 2; ++r)
            for (int t = 0; t < 4; ++t) sum[r][t] = zero();
        repeat<kSub / 8>([&](auto part) PICOLM_LAMBDA {
            constexpr int k_part = decltype(part)::value;
            const Bytes w0 = load(q + 16 * k_part), w1 = load(q + 2 * kQK + 16 * k_part);
            for (int t = 0; t < 4; ++t) {
                const Bytes in = load(x + 8 * kTokens * k_part + 16 * t);
                sum[0][t] = vmmlaq_s32(sum[0][t], w0, in);
                sum[1][t] = vmmlaq_s32(sum[1][t], w1, in);
            }
        });
    }
    PICOLM_INLINE static void by_rows(const Ints (*pair)[4], Ints (*sum)[2]) {
        for (int r = 0; r < 2; ++r)
            for (int v = 0; v < 2; ++v) {
                sum[2 * r][v] = low_halves(pair[r][2 * v], pair[r][2 * v + 1]);
                sum[2 * r + 1][v] = high_halves(pair[r][2 * v], pair[r][2 * v + 1]);
            }
    }
    template <class Format, int kRows>
    PICOLM_INLINE static void dot256(const int8_t* q, const int8_t* x,
                                     const int16_t (*scale)[kRows], Ints (*sum)[2]) {
        constexpr int kSub = Format::kSub;
        Ints total[2][4];
        for (int r = 0; r < 2; ++r)
            for (int t = 0; t < 4; ++t) total[r][t] = zero();
        for (int s = 0; s < kQK / kSub; ++s) {
            const Ints factor = vmovl_s16(vld1_s16(scale[s]));
            const Ints twice[2] = {vzip1q_s32(factor, factor), vzip2q_s32(factor, factor)};
            Ints v[2][4];
            products<kSub>(q + 2 * kSub * s, x + kTokens * kSub * s, v);
            for (int r = 0; r < 2; ++r)
                for (int t = 0; t < 4; ++t) total[r][t] = vmlaq_s32(total[r][t], v[r][t], twice[r]);
        }
        by_rows(total, sum);
    }
    template <bool kWide>
    PICOLM_INLINE static void dot32(const int8_t* q, const int8_t* x, uint32_t g, Ints (*sum)[2]) {
        Ints v[2][4];
        products<32>(q + 2 * 32 * g, x, v);
        by_rows(v, sum);
    }
};

}  // namespace

void fill_i8mm(Kernels& table) {
    fill_large<MatrixGemm>(table.large);
}

}  // namespace picolm
