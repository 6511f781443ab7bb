// AVX2 + F16C, small batches of quantised weights. Weights are unpacked to unsigned bytes where the
// format allows, so that one maddubs multiplies 32 of them; sums are int32 and therefore exact in
// any order, and the float steps follow generic.cpp. Everything is in an anonymous namespace:
// nothing compiled here with AVX2 flags may be shared with other files.
#include <immintrin.h>

#include <cstddef>
#include <cstring>

#include "base/math.h"
#include "kernels/blocks.h"
#include "kernels/half.h"
#include "kernels/levels.h"

namespace picolm {
namespace {

#include "kernels/avx2_common.inc"

#include "kernels/avx2_formats.inc"

// Steps of horizontal sums, twice as fast as the instructions made for them: dwords of two vectors
// alternate, then quadwords of two such.
PICOLM_INLINE Vec add_dwords(Vec a, Vec b) {
    return _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}
PICOLM_INLINE Vec add_qwords(Vec a, Vec b) {
    return _mm256_add_epi32(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}
// Four vectors of add_dwords((v0, v1)), ((v2, v3)), ...: lane i of the result is the sum over v[i].
PICOLM_INLINE Vec join_pairs(const Vec v[4]) {
    const Vec a = add_qwords(v[0], v[1]), b = add_qwords(v[2], v[3]);
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                            _mm256_permute2x128_si256(a, b, 0x31));
}
// Lane i of the result is the sum over v[i].
PICOLM_INLINE Vec sum_lanes(const Vec v[8]) {
    const Vec pairs[4] = {add_dwords(v[0], v[1]), add_dwords(v[2], v[3]), add_dwords(v[4], v[5]),
                          add_dwords(v[6], v[7])};
    return join_pairs(pairs);
}

int32_t sum_lanes(Vec v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

// Eight dwords at p, p + stride, ...
PICOLM_INLINE Vec gather(const uint8_t* p, size_t stride) {
    __m128i v[8];
    for (size_t i = 0; i < 8; ++i) v[i] = _mm_loadu_si32(p + i * stride);
    const __m128i a =
        _mm_unpacklo_epi64(_mm_unpacklo_epi32(v[0], v[1]), _mm_unpacklo_epi32(v[2], v[3]));
    const __m128i b =
        _mm_unpacklo_epi64(_mm_unpacklo_epi32(v[4], v[5]), _mm_unpacklo_epi32(v[6], v[7]));
    return _mm256_set_m128i(b, a);
}
// The low half of each dword as a float; the high half.
PICOLM_INLINE VecF low_halves(Vec v) {
    const Vec words = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
    const Vec packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}
PICOLM_INLINE VecF high_halves(Vec v) {
    const Vec words = _mm256_srli_epi32(v, 16);
    const Vec packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}

// ---- small batch, 256-blocks: eight rows are the lanes of the float steps

// Lanes that add up to S of one block, for each token.
template <class Format, int kTok>
PICOLM_INLINE void block_dots(const typename Format::Block& b, const Scales& scales,
                              const ActBlock* const x[kTok], Vec sum[kTok]) {
    Vec q[8];
    Format::unpack(b, q);
    if constexpr (Format::kOffsetBits > 0) {
        const Vec words = _mm256_cvtepi8_epi16(Format::scale_bytes(b));
        for (int t = 0; t < kTok; ++t)
            sum[t] =
                _mm256_sub_epi32(_mm256_setzero_si256(),
                                 _mm256_slli_epi32(_mm256_madd_epi16(words, load(x[t]->sums16)),
                                                   Format::kOffsetBits));
    }
    const auto step = [&](Vec scale, int j) __attribute__((always_inline)) {
        for (int t = 0; t < kTok; ++t) {
            const Vec product =
                _mm256_madd_epi16(multiply<Format::kSigned>(q[j], load(x[t]->q + 32 * j)), scale);
            sum[t] =
                j == 0 && Format::kOffsetBits < 0 ? product : _mm256_add_epi32(sum[t], product);
        }
    };
    step(scale_of<0>(scales.words), 0);
    step(scale_of<1>(scales.words), 1);
    step(scale_of<2>(scales.words), 2);
    step(scale_of<3>(scales.words), 3);
    step(scale_of<4>(scales.words), 4);
    step(scale_of<5>(scales.words), 5);
    step(scale_of<6>(scales.words), 6);
    step(scale_of<7>(scales.words), 7);
}

// Lanes that add up to M of two rows, the first in the lower half.
template <class Format>
PICOLM_INLINE Vec min_dots(const Scales& a, const Scales& b, const ActBlock& x) {
    if constexpr (Format::kSub == 32) {
        const Vec words = _mm256_cvtepu8_epi16(_mm_unpackhi_epi64(a.mins, b.mins));
        return _mm256_madd_epi16(words, twice(load128(x.sums32)));
    } else {
        const Vec sums = load(x.sums16);
        const Vec first = _mm256_madd_epi16(_mm256_cvtepu8_epi16(a.mins), sums);
        const Vec second = _mm256_madd_epi16(_mm256_cvtepu8_epi16(b.mins), sums);
        return _mm256_add_epi32(_mm256_permute2x128_si256(first, second, 0x20),
                                _mm256_permute2x128_si256(first, second, 0x31));
    }
}
// Four of these, in the order of the rows.
PICOLM_INLINE Vec join_halves(const Vec v[4]) {
    const Vec mixed = add_qwords(add_dwords(v[0], v[1]), add_dwords(v[2], v[3]));
    return _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Eight rows, `stride` apart, from `row` on.
template <class Format, int kTok>
PICOLM_INLINE void rows_q256(const uint8_t* row, size_t stride, uint32_t n_blocks,
                             const ActBlock* x, VecF acc[kTok]) {
    using Block = typename Format::Block;
    const uint8_t* ahead = row + 8 * stride;  // the next eight rows, in the order of memory
    for (int t = 0; t < kTok; ++t) acc[t] = _mm256_setzero_ps();
    for (uint32_t b = 0; b < n_blocks; ++b, row += sizeof(Block)) {
        const ActBlock* in[kTok];
        for (uint32_t t = 0; t < kTok; ++t) in[t] = x + t * n_blocks + b;
        Vec dots[kTok][4], mins[kTok][4];
#pragma GCC unroll 1
        for (size_t p = 0; p < 4; ++p) {
            const uint8_t* at = row + 2 * p * stride;
            const Block& first = *reinterpret_cast<const Block*>(at);
            const Block& second = *reinterpret_cast<const Block*>(at + stride);
            prefetch(ahead, 2 * sizeof(Block));
            ahead += 2 * sizeof(Block);
            Vec sum[2][kTok];
            const Scales scales1 = Format::scales(first);
            block_dots<Format, kTok>(first, scales1, in, sum[0]);
            const Scales scales2 = Format::scales(second);
            block_dots<Format, kTok>(second, scales2, in, sum[1]);
            for (int t = 0; t < kTok; ++t) {
                dots[t][p] = add_dwords(sum[0][t], sum[1][t]);
                if (Format::kHasMin) mins[t][p] = min_dots<Format>(scales1, scales2, *in[t]);
            }
        }
        const Vec halves = gather(row + Format::kHalves, stride);
        const VecF d = Format::kHighHalf ? high_halves(halves) : low_halves(halves);
        for (int t = 0; t < kTok; ++t) {
            VecF term = _mm256_mul_ps(d, to_float(join_pairs(dots[t])));
            if (Format::kHasMin)
                term = _mm256_sub_ps(
                    term, _mm256_mul_ps(high_halves(halves), to_float(join_halves(mins[t]))));
            acc[t] = _mm256_add_ps(acc[t], _mm256_mul_ps(_mm256_set1_ps(in[t]->d[0]), term));
        }
    }
}

template <class Format, int kTok>
void mat_q256_fixed(const MatArgs& a, const ActBlock* x) {
    const uint32_t n_blocks = a.n_in / kQK;
    VecF acc[kTok];
    uint32_t r = 0;
    for (; r + 8 <= a.n_rows; r += 8) {
        rows_q256<Format, kTok>(a.w + r * a.row_bytes, a.row_bytes, n_blocks, x, acc);
        for (size_t t = 0; t < kTok; ++t) _mm256_storeu_ps(a.y + t * a.y_stride + r, acc[t]);
    }
    for (; r < a.n_rows; ++r) {  // eight times the same
        rows_q256<Format, kTok>(a.w + r * a.row_bytes, 0, n_blocks, x, acc);
        for (size_t t = 0; t < kTok; ++t) a.y[t * a.y_stride + r] = _mm256_cvtss_f32(acc[t]);
    }
}

// A token count becomes a sequence of fixed ones: what one kernel keeps in registers.
template <void (*kFixed1)(const MatArgs&, const ActBlock*),
          void (*kFixed2)(const MatArgs&, const ActBlock*),
          void (*kFixed4)(const MatArgs&, const ActBlock*)>
void by_token_count(const MatArgs& args, const ActBlock* x) {
    MatArgs a = args;
    for (uint32_t t = 0; t < args.n_tok;) {
        const uint32_t left = args.n_tok - t;
        a.y = args.y + t * args.y_stride;
        const ActBlock* in = x + t * act_blocks(args.n_in);
        if (left >= 4) {
            kFixed4(a, in);
            t += 4;
        } else if (left >= 2) {
            kFixed2(a, in);
            t += 2;
        } else {
            kFixed1(a, in);
            t += 1;
        }
    }
}

template <class Format>
constexpr MatSmall small_q256() {
    return by_token_count<mat_q256_fixed<Format, 1>, mat_q256_fixed<Format, 2>,
                          mat_q256_fixed<Format, 4>>;
}

// ---- 32-element blocks: eight blocks of one row are the lanes of the float steps

template <class Format>
uint16_t offset_half(const typename Format::Block& b) {
    if constexpr (Format::kHasMin) return b.m;
    return 0;
}

// What the offset of the weights adds to a sum of products.
template <class Format>
PICOLM_INLINE Vec offset(Vec act_sums) {
    if constexpr (Format::kOffsetBits < 0) return _mm256_setzero_si256();
    return _mm256_slli_epi32(act_sums, Format::kOffsetBits);
}

// Lane i of the result: the sum of the words of v[i].
template <int kChain>
PICOLM_INLINE Vec sum_products(const Vec v[8]) {
    if constexpr (kChain == 8) {  // eight words of each sum up in a word
        const auto add = [](Vec a, Vec b) __attribute__((always_inline)) {
            return _mm256_add_epi16(a, b);
        };
        Vec pairs[4], fours[2];
        for (int i = 0; i < 4; ++i)
            pairs[i] = add(_mm256_unpacklo_epi16(v[2 * i], v[2 * i + 1]),
                           _mm256_unpackhi_epi16(v[2 * i], v[2 * i + 1]));
        for (int i = 0; i < 2; ++i)
            fours[i] = add(_mm256_unpacklo_epi32(pairs[2 * i], pairs[2 * i + 1]),
                           _mm256_unpackhi_epi32(pairs[2 * i], pairs[2 * i + 1]));
        const Vec halves = add(_mm256_unpacklo_epi64(fours[0], fours[1]),
                               _mm256_unpackhi_epi64(fours[0], fours[1]));
        return _mm256_add_epi32(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(halves)),
                                _mm256_cvtepi16_epi32(_mm256_extracti128_si256(halves, 1)));
    } else {
        Vec sums[8];
        for (int i = 0; i < 8; ++i) sums[i] = _mm256_madd_epi16(v[i], _mm256_set1_epi16(1));
        return sum_lanes(sums);
    }
}

// One 32-block, for the ragged end of a row.
template <class Format>
float term_q32(const typename Format::Block& b, const ActBlock& x, uint32_t g) {
    const Vec product = multiply<Format::kSigned>(Format::unpack(b), load(x.q + 32 * g));
    const int32_t sum =
        sum_lanes(_mm256_madd_epi16(product, _mm256_set1_epi16(1))) -
        (Format::kOffsetBits < 0 ? 0 : x.sums32[g] * (1 << (Format::kOffsetBits & 7)));
    float term = f16_to_f32(b.d) * static_cast<float>(sum);
    if (Format::kHasMin)
        term = term + f16_to_f32(offset_half<Format>(b)) * static_cast<float>(x.sums32[g]);
    return x.d[g] * term;
}

template <class Format, int kTok>
void mat_q32_fixed(const MatArgs& a, const ActBlock* x) {
    using Block = typename Format::Block;
    const uint32_t n_blocks = a.n_in / kQK32, n_full = n_blocks / 8;
    const size_t x_stride = act_blocks(a.n_in);
    for (uint32_t r = 0; r < a.n_rows; ++r) {
        const auto* row = reinterpret_cast<const Block*>(a.w + r * a.row_bytes);
        VecF acc[kTok];
        for (VecF& each : acc) each = _mm256_setzero_ps();
        for (uint32_t i = 0; i < n_full; ++i) {
            const Block* b = row + 8 * i;
            prefetch(reinterpret_cast<const uint8_t*>(b) + 8192, 8 * sizeof(Block));
            Vec q[8], sums[8];
            for (int g = 0; g < 8; ++g) q[g] = Format::unpack(b[g]);
            const Vec halves = gather(reinterpret_cast<const uint8_t*>(b), sizeof(Block));
            const VecF d = low_halves(halves);
            for (size_t t = 0; t < kTok; ++t) {
                const ActBlock& in = x[t * x_stride + i];
                for (int g = 0; g < 8; ++g)
                    sums[g] = multiply<Format::kSigned>(q[g], load(in.q + 32 * g));
                Vec sum = sum_products<Format::kChain>(sums);
                const Vec act_sums = _mm256_cvtepi16_epi32(load128(in.sums32));
                sum = _mm256_sub_epi32(sum, offset<Format>(act_sums));
                VecF term = _mm256_mul_ps(d, to_float(sum));
                if (Format::kHasMin)
                    term =
                        _mm256_add_ps(term, _mm256_mul_ps(high_halves(halves), to_float(act_sums)));
                acc[t] = _mm256_add_ps(acc[t], _mm256_mul_ps(_mm256_loadu_ps(in.d), term));
            }
        }
        for (size_t t = 0; t < kTok; ++t) {
            if (8 * n_full < n_blocks) {
                float lane[8];
                _mm256_storeu_ps(lane, acc[t]);
                for (uint32_t g = 0; 8 * n_full + g < n_blocks; ++g)
                    lane[g] = lane[g] +
                              term_q32<Format>(row[8 * n_full + g], x[t * x_stride + n_full], g);
                acc[t] = _mm256_loadu_ps(lane);
            }
            a.y[t * a.y_stride + r] = tree_sum(acc[t]);
        }
    }
}

template <class Format>
constexpr MatSmall small_q32() {
    return by_token_count<mat_q32_fixed<Format, 1>, mat_q32_fixed<Format, 2>,
                          mat_q32_fixed<Format, 4>>;
}

}  // namespace

void fill_avx2(Kernels& table) {
    fill_avx2_operators(table);
    fill_avx2_large(table.large);
    const auto small = [&](TensorType type) -> MatSmall& {
        return table.mat_small[static_cast<size_t>(type)];
    };
    small(TensorType::q2_k) = small_q256<Q2K>();
    small(TensorType::q3_k) = small_q256<Q3K>();
    small(TensorType::q4_k) = small_q256<Q4K>();
    small(TensorType::q5_k) = small_q256<Q5K>();
    small(TensorType::q6_k) = small_q256<Q6K>();
    small(TensorType::iq4_xs) = small_q256<IQ4XS>();
    small(TensorType::q4_0) = small_q32<Q4_0>();
    small(TensorType::q4_1) = small_q32<Q4_1>();
    small(TensorType::q5_0) = small_q32<Q5_0>();
    small(TensorType::q5_1) = small_q32<Q5_1>();
    small(TensorType::q8_0) = small_q32<Q8_0>();
    small(TensorType::iq4_nl) = small_q32<IQ4NL>();
}

}  // namespace picolm
