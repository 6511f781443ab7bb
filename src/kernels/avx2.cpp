// AVX2 + F16C. Weights are unpacked to unsigned bytes where the format allows, so that one
// maddubs multiplies 32 of them; sums are int32 and therefore exact in any order, and the float
// steps follow generic.cpp. Everything is in an anonymous namespace: nothing compiled here with
// AVX2 flags may be shared with other files.
#include <immintrin.h>

#include <cstring>

#include "base/math.h"
#include "kernels/blocks.h"
#include "kernels/half.h"
#include "kernels/levels.h"

namespace picolm {
namespace {

using Vec = __m256i;
using VecF = __m256;

// Inner loops keep their operands in registers only when they are part of their caller.
#define PICOLM_INLINE [[gnu::always_inline]] inline

PICOLM_INLINE Vec load(const void* p) {
    return _mm256_loadu_si256(static_cast<const Vec*>(p));
}
PICOLM_INLINE __m128i load128(const void* p) {
    return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
VecF to_float(Vec v) {
    return _mm256_cvtepi32_ps(v);
}

// Sums of eight vectors: lane i of the result is the sum over v[i].
Vec sum_lanes(const Vec v[8]) {
    const Vec a = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
    const Vec b = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                            _mm256_permute2x128_si256(a, b, 0x31));
}

int32_t sum_lanes(Vec v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

float tree_sum(VecF v) {  // 8 lanes: i + 4, i + 2, i + 1
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

VecF halves_to_float(const uint16_t h[8]) {
    return _mm256_cvtph_ps(load128(h));
}

// ---- formats: how a block becomes eight vectors of bytes
//
// kSigned: the bytes are signed (products go through |q| and the sign of q moved to the
// activation), else unsigned with kOffset to subtract. kChain: how many sums of maddubs over
// groups of four weights fit into int16.

constexpr uint8_t k_low4 = 15;

PICOLM_INLINE Vec low_nibbles(Vec v) {
    return _mm256_and_si256(v, _mm256_set1_epi8(k_low4));
}
PICOLM_INLINE Vec high_nibbles(Vec v) {
    return low_nibbles(_mm256_srli_epi16(v, 4));
}
template <int kShift>
PICOLM_INLINE Vec bits2(Vec v) {
    return _mm256_and_si256(_mm256_srli_epi16(v, kShift), _mm256_set1_epi8(3));
}
// Bit kBit of each byte, moved to bit kTo.
template <int kBit, int kTo>
PICOLM_INLINE Vec move_bit(Vec v) {
    const Vec moved = kBit > kTo ? _mm256_srli_epi16(v, kBit > kTo ? kBit - kTo : 0)
                                 : _mm256_slli_epi16(v, kTo > kBit ? kTo - kBit : 0);
    return _mm256_and_si256(moved, _mm256_set1_epi8(1 << kTo));
}
// Nibbles of 16 bytes: elements 0..15 low, 16..31 high.
PICOLM_INLINE Vec nibbles_of_16(const uint8_t* qs) {
    const __m128i b = load128(qs);
    return low_nibbles(_mm256_set_m128i(_mm_srli_epi16(b, 4), b));
}
PICOLM_INLINE Vec iq4_levels(Vec nibbles) {
    const __m128i levels = load128(kIq4Levels);
    return _mm256_shuffle_epi8(_mm256_set_m128i(levels, levels), nibbles);
}

struct Q4K {
    using Block = BlockQ4_K;
    static constexpr int kSub = 32, kOffsetBits = -1, kChain = 8;
    static constexpr bool kSigned = false, kHasMin = true;
    PICOLM_INLINE static void unpack(const Block& b, Vec q[8]) {
        for (int k = 0; k < 4; ++k) {
            const Vec v = load(b.qs + 32 * k);
            q[2 * k] = low_nibbles(v);
            q[2 * k + 1] = high_nibbles(v);
        }
    }
    PICOLM_INLINE static void scales(const Block& b, int16_t* scale, int16_t* min) {
        uint8_t s[16];
        unpack_q4_k_scales(b.scales, s, s + 8);
        const Vec both = _mm256_cvtepu8_epi16(load128(s));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(scale), _mm256_castsi256_si128(both));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(min), _mm256_extracti128_si256(both, 1));
    }
};

struct Q5K {
    using Block = BlockQ5_K;
    static constexpr int kSub = 32, kOffsetBits = -1, kChain = 4;
    static constexpr bool kSigned = false, kHasMin = true;
    PICOLM_INLINE static void unpack(const Block& b, Vec q[8]) {
        const Vec h = load(b.qh);
        const Vec high[8] = {move_bit<0, 4>(h), move_bit<1, 4>(h), move_bit<2, 4>(h),
                             move_bit<3, 4>(h), move_bit<4, 4>(h), move_bit<5, 4>(h),
                             move_bit<6, 4>(h), move_bit<7, 4>(h)};
        for (int k = 0; k < 4; ++k) {
            const Vec v = load(b.qs + 32 * k);
            q[2 * k] = _mm256_or_si256(low_nibbles(v), high[2 * k]);
            q[2 * k + 1] = _mm256_or_si256(high_nibbles(v), high[2 * k + 1]);
        }
    }
    PICOLM_INLINE static void scales(const Block& b, int16_t* scale, int16_t* min) {
        uint8_t s[16];
        unpack_q4_k_scales(b.scales, s, s + 8);
        const Vec both = _mm256_cvtepu8_epi16(load128(s));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(scale), _mm256_castsi256_si128(both));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(min), _mm256_extracti128_si256(both, 1));
    }
};

struct Q6K {
    using Block = BlockQ6_K;
    static constexpr int kSub = 16, kOffsetBits = 5, kChain = 2;
    static constexpr bool kSigned = false, kHasMin = false;
    PICOLM_INLINE static void unpack(const Block& b, Vec q[8]) {
        for (int half = 0; half < 2; ++half) {
            const Vec l0 = load(b.ql + 64 * half), l1 = load(b.ql + 64 * half + 32);
            const Vec h = load(b.qh + 32 * half);
            q[4 * half] = _mm256_or_si256(low_nibbles(l0), _mm256_slli_epi16(bits2<0>(h), 4));
            q[4 * half + 1] = _mm256_or_si256(low_nibbles(l1), _mm256_slli_epi16(bits2<2>(h), 4));
            q[4 * half + 2] = _mm256_or_si256(high_nibbles(l0), _mm256_slli_epi16(bits2<4>(h), 4));
            q[4 * half + 3] = _mm256_or_si256(high_nibbles(l1), _mm256_slli_epi16(bits2<6>(h), 4));
        }
    }
    PICOLM_INLINE static void scales(const Block& b, int16_t* scale, int16_t*) {
        _mm256_storeu_si256(reinterpret_cast<Vec*>(scale), _mm256_cvtepi8_epi16(load128(b.scales)));
    }
};

struct Q3K {
    using Block = BlockQ3_K;
    static constexpr int kSub = 16, kOffsetBits = 2, kChain = 4;
    static constexpr bool kSigned = false, kHasMin = false;
    PICOLM_INLINE static void unpack(const Block& b, Vec q[8]) {
        const Vec h = load(b.hmask);
        const Vec high[8] = {move_bit<0, 2>(h), move_bit<1, 2>(h), move_bit<2, 2>(h),
                             move_bit<3, 2>(h), move_bit<4, 2>(h), move_bit<5, 2>(h),
                             move_bit<6, 2>(h), move_bit<7, 2>(h)};
        for (int half = 0; half < 2; ++half) {
            const Vec v = load(b.qs + 32 * half);
            q[4 * half] = _mm256_or_si256(bits2<0>(v), high[4 * half]);
            q[4 * half + 1] = _mm256_or_si256(bits2<2>(v), high[4 * half + 1]);
            q[4 * half + 2] = _mm256_or_si256(bits2<4>(v), high[4 * half + 2]);
            q[4 * half + 3] = _mm256_or_si256(bits2<6>(v), high[4 * half + 3]);
        }
    }
    PICOLM_INLINE static void scales(const Block& b, int16_t* scale, int16_t*) {
        int8_t s[16];
        unpack_q3_k_scales(b.scales, s);
        _mm256_storeu_si256(reinterpret_cast<Vec*>(scale), _mm256_cvtepi8_epi16(load128(s)));
    }
};

struct Q2K {
    using Block = BlockQ2_K;
    static constexpr int kSub = 16, kOffsetBits = -1, kChain = 4;
    static constexpr bool kSigned = false, kHasMin = true;
    PICOLM_INLINE static void unpack(const Block& b, Vec q[8]) {
        for (int half = 0; half < 2; ++half) {
            const Vec v = load(b.qs + 32 * half);
            q[4 * half] = bits2<0>(v);
            q[4 * half + 1] = bits2<2>(v);
            q[4 * half + 2] = bits2<4>(v);
            q[4 * half + 3] = bits2<6>(v);
        }
    }
    PICOLM_INLINE static void scales(const Block& b, int16_t* scale, int16_t* min) {
        const Vec s = _mm256_cvtepu8_epi16(load128(b.scales));
        _mm256_storeu_si256(reinterpret_cast<Vec*>(scale),
                            _mm256_and_si256(s, _mm256_set1_epi16(15)));
        _mm256_storeu_si256(reinterpret_cast<Vec*>(min), _mm256_srli_epi16(s, 4));
    }
};

struct IQ4XS {
    using Block = BlockIQ4_XS;
    static constexpr int kSub = 32, kOffsetBits = -1, kChain = 1;
    static constexpr bool kSigned = true, kHasMin = false;
    PICOLM_INLINE static void unpack(const Block& b, Vec q[8]) {
        for (int s = 0; s < 8; ++s) q[s] = iq4_levels(nibbles_of_16(b.qs + 16 * s));
    }
    PICOLM_INLINE static void scales(const Block& b, int16_t* scale, int16_t*) {
        int8_t s[8];
        unpack_iq4_xs_scales(b.scales_h, b.scales_l, s);
        for (int i = 0; i < 8; ++i) scale[i] = s[i];
    }
};

template <bool kSigned>
PICOLM_INLINE Vec multiply(Vec q, Vec a) {
    if (kSigned) return _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(a, q));
    return _mm256_maddubs_epi16(q, a);
}

// ---- small batch, 256-blocks: eight rows are the lanes of the float steps

template <class Format>
PICOLM_INLINE Vec scale_pair(const int16_t* scale, int j) {
    if (Format::kSub == 32) return _mm256_set1_epi16(scale[j]);
    return _mm256_set_m128i(_mm_set1_epi16(scale[2 * j + 1]), _mm_set1_epi16(scale[2 * j]));
}

template <class Format>
struct RowBlock {
    Vec q[8];
    Vec scale[8];
    int16_t scales[16];
    int16_t mins[16];

    PICOLM_INLINE explicit RowBlock(const typename Format::Block& b) {
        Format::unpack(b, q);
        Format::scales(b, scales, mins);
        for (int j = 0; j < 8; ++j) scale[j] = scale_pair<Format>(scales, j);
    }
    // Lanes that add up to S.
    PICOLM_INLINE Vec dot(const ActBlock& x) const {
        Vec sum = _mm256_setzero_si256();
        if (Format::kOffsetBits > 0) {
            const Vec sums = _mm256_madd_epi16(load(scales), load(x.sums16));
            sum = _mm256_sub_epi32(
                sum, _mm256_slli_epi32(sums, Format::kOffsetBits > 0 ? Format::kOffsetBits : 0));
        }
        for (int j = 0; j < 8; ++j) {
            const Vec product = multiply<Format::kSigned>(q[j], load(x.q + 32 * j));
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(product, scale[j]));
        }
        return sum;
    }
    // Lanes that add up to M.
    PICOLM_INLINE Vec min_dot(const ActBlock& x) const {
        if (Format::kSub == 16) return _mm256_madd_epi16(load(mins), load(x.sums16));
        return _mm256_zextsi128_si256(_mm_madd_epi16(load128(mins), load128(x.sums32)));
    }
};

template <class Format>
uint16_t dmin_of(const typename Format::Block& b) {
    if constexpr (Format::kHasMin) return b.dmin;
    return 0;
}

// n_rows <= 8 rows from `w` on; missing ones repeat the last.
template <class Format, int kTok>
void rows_q256(const MatArgs& a, const ActBlock* x, const uint8_t* w, uint32_t n_rows, float* y) {
    using Block = typename Format::Block;
    const uint32_t n_blocks = a.n_in / kQK;
    const Block* row[8];
    for (uint32_t r = 0; r < 8; ++r)
        row[r] = reinterpret_cast<const Block*>(w + (r < n_rows ? r : n_rows - 1) * a.row_bytes);
    const char* ahead = reinterpret_cast<const char*>(w) + 8 * a.row_bytes;
    VecF acc[kTok];
    for (VecF& each : acc) each = _mm256_setzero_ps();
    for (uint32_t b = 0; b < n_blocks; ++b) {
        for (size_t i = 0; i < 8 * sizeof(Block); i += 64) _mm_prefetch(ahead + i, _MM_HINT_T0);
        ahead += 8 * sizeof(Block);
        Vec sums[kTok][8], min_sums[kTok][8];
        uint16_t d[8], dmin[8];
        for (int r = 0; r < 8; ++r) {
            const Block& block = row[r][b];
            const RowBlock<Format> unpacked(block);
            d[r] = block.d;
            dmin[r] = dmin_of<Format>(block);
            for (int t = 0; t < kTok; ++t) {
                const ActBlock& in = x[static_cast<uint32_t>(t) * n_blocks + b];
                sums[t][r] = unpacked.dot(in);
                if (Format::kHasMin) min_sums[t][r] = unpacked.min_dot(in);
            }
        }
        for (int t = 0; t < kTok; ++t) {
            const ActBlock& in = x[static_cast<uint32_t>(t) * n_blocks + b];
            VecF term = _mm256_mul_ps(halves_to_float(d), to_float(sum_lanes(sums[t])));
            if (Format::kHasMin)
                term = _mm256_sub_ps(
                    term, _mm256_mul_ps(halves_to_float(dmin), to_float(sum_lanes(min_sums[t]))));
            acc[t] = _mm256_add_ps(acc[t], _mm256_mul_ps(_mm256_set1_ps(in.d[0]), term));
        }
    }
    for (int t = 0; t < kTok; ++t) {
        float out[8];
        _mm256_storeu_ps(out, acc[t]);
        std::memcpy(y + static_cast<size_t>(t) * a.y_stride, out, n_rows * sizeof(float));
    }
}

template <class Format, int kTok>
void mat_q256_fixed(const MatArgs& a, const ActBlock* x) {
    for (uint32_t r = 0; r < a.n_rows; r += 8)
        rows_q256<Format, kTok>(a, x, a.w + r * a.row_bytes, a.n_rows - r < 8 ? a.n_rows - r : 8,
                                a.y + r);
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

struct Q4_0 {
    using Block = BlockQ4_0;
    static constexpr int kOffset = 8, kChain = 8;
    static constexpr bool kSigned = false, kHasMin = false;
    PICOLM_INLINE static Vec unpack(const Block& b) { return nibbles_of_16(b.qs); }
};
struct Q4_1 {
    using Block = BlockQ4_1;
    static constexpr int kOffset = 0, kChain = 8;
    static constexpr bool kSigned = false, kHasMin = true;
    PICOLM_INLINE static Vec unpack(const Block& b) { return nibbles_of_16(b.qs); }
};
PICOLM_INLINE Vec fifth_bits(const uint8_t* qh) {
    int32_t bits;
    std::memcpy(&bits, qh, sizeof bits);
    const Vec spread = _mm256_shuffle_epi8(
        _mm256_set1_epi32(bits), _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2,
                                                  2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3));
    const Vec select = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
    const Vec is_set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, select), select);
    return _mm256_and_si256(is_set, _mm256_set1_epi8(16));
}
struct Q5_0 {
    using Block = BlockQ5_0;
    static constexpr int kOffset = 16, kChain = 4;
    static constexpr bool kSigned = false, kHasMin = false;
    PICOLM_INLINE static Vec unpack(const Block& b) {
        return _mm256_or_si256(nibbles_of_16(b.qs), fifth_bits(b.qh));
    }
};
struct Q5_1 {
    using Block = BlockQ5_1;
    static constexpr int kOffset = 0, kChain = 4;
    static constexpr bool kSigned = false, kHasMin = true;
    PICOLM_INLINE static Vec unpack(const Block& b) {
        return _mm256_or_si256(nibbles_of_16(b.qs), fifth_bits(b.qh));
    }
};
struct Q8_0 {
    using Block = BlockQ8_0;
    static constexpr int kOffset = 0, kChain = 1;
    static constexpr bool kSigned = true, kHasMin = false;
    PICOLM_INLINE static Vec unpack(const Block& b) { return load(b.qs); }
};
struct IQ4NL {
    using Block = BlockIQ4_NL;
    static constexpr int kOffset = 0, kChain = 1;
    static constexpr bool kSigned = true, kHasMin = false;
    PICOLM_INLINE static Vec unpack(const Block& b) { return iq4_levels(nibbles_of_16(b.qs)); }
};

template <class Format>
uint16_t m_of(const typename Format::Block& b) {
    if constexpr (Format::kHasMin) return b.m;
    return 0;
}

// One 32-block, for the ragged end of a row.
template <class Format>
float term_q32(const typename Format::Block& b, const ActBlock& x, uint32_t g) {
    const Vec product = multiply<Format::kSigned>(Format::unpack(b), load(x.q + 32 * g));
    const int32_t sum =
        sum_lanes(_mm256_madd_epi16(product, _mm256_set1_epi16(1))) - Format::kOffset * x.sums32[g];
    float term = f16_to_f32(b.d) * static_cast<float>(sum);
    if (Format::kHasMin)
        term = term + f16_to_f32(m_of<Format>(b)) * static_cast<float>(x.sums32[g]);
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
            for (size_t p = 0; p < 8 * sizeof(Block); p += 64)
                _mm_prefetch(reinterpret_cast<const char*>(b) + 4096 + p, _MM_HINT_T0);
            uint16_t d[8], m[8];
            Vec q[8], sums[8];
            for (int g = 0; g < 8; ++g) {
                q[g] = Format::unpack(b[g]);
                d[g] = b[g].d;
                m[g] = m_of<Format>(b[g]);
            }
            for (size_t t = 0; t < kTok; ++t) {
                const ActBlock& in = x[t * x_stride + i];
                for (int g = 0; g < 8; ++g)
                    sums[g] = _mm256_madd_epi16(
                        multiply<Format::kSigned>(q[g], load(in.q + 32 * g)), _mm256_set1_epi16(1));
                Vec sum = sum_lanes(sums);
                const Vec act_sums = _mm256_cvtepi16_epi32(load128(in.sums32));
                if (Format::kOffset)
                    sum = _mm256_sub_epi32(
                        sum, _mm256_mullo_epi32(act_sums, _mm256_set1_epi32(Format::kOffset)));
                VecF term = _mm256_mul_ps(halves_to_float(d), to_float(sum));
                if (Format::kHasMin)
                    term =
                        _mm256_add_ps(term, _mm256_mul_ps(halves_to_float(m), to_float(act_sums)));
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

// ---- large batch: tokens are the lanes
//
// A panel holds one 256-block of kRows rows as bytes; a tile holds the same block of 8 tokens, four
// activations of each side by side, so that a broadcast of four weights meets 8 tokens.

constexpr uint32_t kPanelTiles = 16;  // tiles that share one unpacking: 128 tokens

template <uint32_t kRows>
struct Panel {
    uint8_t q[kRows][kQK];
    int16_t scale[kRows][16];
    int16_t min[kRows][16];
    float d[kRows][8];  // one per 32-block; 256-blocks use the first
    float m[kRows][8];
};

PICOLM_INLINE Vec broadcast4(const void* p) {
    int32_t bits;
    std::memcpy(&bits, p, sizeof bits);
    return _mm256_set1_epi32(bits);
}

// Products of kSub weights of kR rows with kT tiles of 8 tokens, each row's sum times its scale
// added to sum[row][tile].
template <int kSub, int kChain, bool kSigned, int kR, int kT>
PICOLM_INLINE void sub_block(const uint8_t* const q[kR],
                             const int8_t (*const x[kT])[kTileTokens][4],
                             const int16_t* const scale[kR], Vec sum[kR][kT]) {
    constexpr int kGroups = kSub / 4;
#pragma GCC unroll 8
    for (int g0 = 0; g0 < kGroups; g0 += kChain) {
        Vec acc[kR][kT];
#pragma GCC unroll 8
        for (int g = g0; g < g0 + kChain; ++g) {
            Vec in[kT];
            for (int t = 0; t < kT; ++t) in[t] = load(x[t][g]);
#pragma GCC unroll 4
            for (int r = 0; r < kR; ++r) {
                const Vec w = broadcast4(q[r] + 4 * g);
#pragma GCC unroll 2
                for (int t = 0; t < kT; ++t) {
                    const Vec product = multiply<kSigned>(w, in[t]);
                    acc[r][t] = g == g0 ? product : _mm256_add_epi16(acc[r][t], product);
                }
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < kR; ++r) {
            const Vec factor = scale ? _mm256_set1_epi16(*scale[r]) : _mm256_set1_epi16(1);
#pragma GCC unroll 2
            for (int t = 0; t < kT; ++t)
                sum[r][t] = _mm256_add_epi32(sum[r][t], _mm256_madd_epi16(acc[r][t], factor));
        }
    }
}

template <int kPairs>
PICOLM_INLINE Vec pair_sums(const int16_t (*sums)[kTileTokens][2], const int16_t* factors) {
    Vec sum = _mm256_setzero_si256();
    for (int g = 0; g < kPairs; ++g)
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(load(sums[g]), broadcast4(factors + 2 * g)));
    return sum;
}

// One block of kR rows against kT tiles: acc[t][r] += da * (d * S - dmin * M).
template <class Format, int kR, int kT, uint32_t kRows>
PICOLM_INLINE void tile_q256(const Panel<kRows>& panel, uint32_t row, const ActTile* const x[kT],
                             VecF* const acc[kT]) {
    Vec sum[kR][kT];
    for (uint32_t r = 0; r < kR; ++r)
        for (int t = 0; t < kT; ++t) {
            sum[r][t] = _mm256_setzero_si256();
            if (Format::kOffsetBits > 0)
                sum[r][t] = _mm256_sub_epi32(
                    sum[r][t],
                    _mm256_slli_epi32(pair_sums<8>(x[t]->sums16, panel.scale[row + r]),
                                      Format::kOffsetBits > 0 ? Format::kOffsetBits : 0));
        }
    for (int s = 0; s < kQK / Format::kSub; ++s) {
        const uint8_t* q[kR];
        const int16_t* scale[kR];
        const int8_t(*in[kT])[kTileTokens][4];
        for (uint32_t r = 0; r < kR; ++r) {
            q[r] = panel.q[row + r] + s * Format::kSub;
            scale[r] = &panel.scale[row + r][s];
        }
        for (int t = 0; t < kT; ++t) in[t] = x[t]->q + s * Format::kSub / 4;
        sub_block<Format::kSub, Format::kChain, Format::kSigned, kR, kT>(q, in, scale, sum);
    }
    for (uint32_t r = 0; r < kR; ++r)
        for (int t = 0; t < kT; ++t) {
            VecF term = _mm256_mul_ps(_mm256_set1_ps(panel.d[row + r][0]), to_float(sum[r][t]));
            if (Format::kHasMin) {
                const Vec mins = Format::kSub == 16
                                     ? pair_sums<8>(x[t]->sums16, panel.min[row + r])
                                     : pair_sums<4>(x[t]->sums32, panel.min[row + r]);
                term = _mm256_sub_ps(
                    term, _mm256_mul_ps(_mm256_set1_ps(panel.m[row + r][0]), to_float(mins)));
            }
            acc[t][r] = _mm256_add_ps(acc[t][r], _mm256_mul_ps(_mm256_load_ps(x[t]->d[0]), term));
        }
}

template <class Format, uint32_t kRows>
void unpack_q256(Panel<kRows>& panel, uint32_t r, const typename Format::Block& b) {
    Vec q[8];
    Format::unpack(b, q);
    for (int j = 0; j < 8; ++j)
        _mm256_store_si256(reinterpret_cast<Vec*>(panel.q[r] + 32 * j), q[j]);
    Format::scales(b, panel.scale[r], panel.min[r]);
    panel.d[r][0] = f16_to_f32(b.d);
    if constexpr (Format::kHasMin) panel.m[r][0] = f16_to_f32(b.dmin);
}

// Eight tokens' sums of one row leave the lanes.
void store_column(VecF v, const MatArgs& a, uint32_t tile, uint32_t row) {
    float out[8];
    _mm256_storeu_ps(out, v);
    const uint32_t first = tile * kTileTokens;
    for (uint32_t t = 0; t < kTileTokens && first + t < a.n_tok; ++t)
        a.y[(first + t) * a.y_stride + row] = out[t];
}

template <class Format>
void large_q256(const MatArgs& a, const ActTile* x, uint8_t* scratch) {
    using Block = typename Format::Block;
    constexpr uint32_t kRows = 16, kR = 4;
    struct Work {
        alignas(64) Panel<kRows> panel;
        VecF acc[kPanelTiles][kRows];
    };
    static_assert(sizeof(Work) <= kPanelBytes);
    Work& work = *reinterpret_cast<Work*>(scratch);
    const uint32_t n_blocks = a.n_in / kQK, n_tiles = (a.n_tok + kTileTokens - 1) / kTileTokens;
    for (uint32_t r0 = 0; r0 < a.n_rows; r0 += kRows) {
        const uint32_t n_rows = a.n_rows - r0 < kRows ? a.n_rows - r0 : kRows;
        const uint32_t padded = (n_rows + kR - 1) / kR * kR;
        for (uint32_t t0 = 0; t0 < n_tiles; t0 += kPanelTiles) {
            const uint32_t n = n_tiles - t0 < kPanelTiles ? n_tiles - t0 : kPanelTiles;
            std::memset(work.acc, 0, n * sizeof work.acc[0]);
            for (uint32_t b = 0; b < n_blocks; ++b) {
                for (uint32_t r = 0; r < padded; ++r) {
                    const uint32_t real = r < n_rows ? r : n_rows - 1;
                    const uint8_t* row = a.w + (r0 + real) * a.row_bytes;
                    const auto* block = reinterpret_cast<const Block*>(row) + b;
                    _mm_prefetch(reinterpret_cast<const char*>(block + 1), _MM_HINT_T0);
                    _mm_prefetch(reinterpret_cast<const char*>(block + 1) + 64, _MM_HINT_T0);
                    _mm_prefetch(reinterpret_cast<const char*>(block + 1) + 128, _MM_HINT_T0);
                    unpack_q256<Format, kRows>(work.panel, r, *block);
                }
                const ActTile* in = x + t0 * n_blocks + b;
                uint32_t t = 0;
                for (; t + 2 <= n; t += 2) {
                    const ActTile* const two[] = {in + t * n_blocks, in + (t + 1) * n_blocks};
                    for (uint32_t r = 0; r < padded; r += kR) {
                        VecF* const acc[] = {work.acc[t] + r, work.acc[t + 1] + r};
                        tile_q256<Format, kR, 2, kRows>(work.panel, r, two, acc);
                    }
                }
                for (uint32_t r = 0; t < n && r < padded; r += kR) {
                    const ActTile* const one[] = {in + t * n_blocks};
                    VecF* const acc[] = {work.acc[t] + r};
                    tile_q256<Format, kR, 1, kRows>(work.panel, r, one, acc);
                }
            }
            for (uint32_t t = 0; t < n; ++t)
                for (uint32_t r = 0; r < n_rows; ++r)
                    store_column(work.acc[t][r], a, t0 + t, r0 + r);
        }
    }
}

template <class Format, uint32_t kRows>
void unpack_q32(Panel<kRows>& panel, uint32_t r, const typename Format::Block& b, uint32_t g) {
    _mm256_store_si256(reinterpret_cast<Vec*>(panel.q[r] + 32 * g), Format::unpack(b));
    panel.d[r][g] = f16_to_f32(b.d);
    if constexpr (Format::kHasMin) panel.m[r][g] = f16_to_f32(b.m);
}

// n_groups 32-blocks of kR rows against one tile; acc: [row][8 accumulators].
template <class Format, int kR, uint32_t kRows>
PICOLM_INLINE void tile_q32(const Panel<kRows>& panel, uint32_t row, const ActTile& x,
                            uint32_t n_groups, VecF (*acc)[8]) {
    for (uint32_t g = 0; g < n_groups; ++g) {
        const uint8_t* q[kR];
        Vec sum[kR][1];
        const Vec act_sum = _mm256_madd_epi16(load(x.sums16[g]), _mm256_set1_epi16(1));
        const Vec offset = _mm256_mullo_epi32(act_sum, _mm256_set1_epi32(Format::kOffset));
        for (uint32_t r = 0; r < kR; ++r) {
            q[r] = panel.q[row + r] + 32 * g;
            sum[r][0] = _mm256_sub_epi32(_mm256_setzero_si256(), offset);
        }
        const int8_t(*const in[])[kTileTokens][4] = {x.q + 8 * g};
        sub_block<32, Format::kChain, Format::kSigned, kR, 1>(q, in, nullptr, sum);
        const VecF da = _mm256_load_ps(x.d[g]);
        for (uint32_t r = 0; r < kR; ++r) {
            VecF term = _mm256_mul_ps(_mm256_set1_ps(panel.d[row + r][g]), to_float(sum[r][0]));
            if (Format::kHasMin)
                term = _mm256_add_ps(
                    term, _mm256_mul_ps(_mm256_set1_ps(panel.m[row + r][g]), to_float(act_sum)));
            acc[r][g] = _mm256_add_ps(acc[r][g], _mm256_mul_ps(da, term));
        }
    }
}

VecF tree_of_vectors(const VecF v[8]) {
    const VecF a0 = _mm256_add_ps(v[0], v[4]), a1 = _mm256_add_ps(v[1], v[5]);
    const VecF a2 = _mm256_add_ps(v[2], v[6]), a3 = _mm256_add_ps(v[3], v[7]);
    return _mm256_add_ps(_mm256_add_ps(a0, a2), _mm256_add_ps(a1, a3));
}

template <class Format>
void large_q32(const MatArgs& a, const ActTile* x, uint8_t* scratch) {
    using Block = typename Format::Block;
    constexpr uint32_t kRows = 8, kR = 4;
    struct Work {
        alignas(64) Panel<kRows> panel;
        VecF acc[kPanelTiles][kRows][8];
    };
    static_assert(sizeof(Work) <= kPanelBytes);
    Work& work = *reinterpret_cast<Work*>(scratch);
    const uint32_t n_blocks = a.n_in / kQK32, n_tiles = (a.n_tok + kTileTokens - 1) / kTileTokens;
    const uint32_t n_wide = static_cast<uint32_t>(act_blocks(a.n_in));
    for (uint32_t r0 = 0; r0 < a.n_rows; r0 += kRows) {
        const uint32_t n_rows = a.n_rows - r0 < kRows ? a.n_rows - r0 : kRows;
        const uint32_t padded = (n_rows + kR - 1) / kR * kR;
        for (uint32_t t0 = 0; t0 < n_tiles; t0 += kPanelTiles) {
            const uint32_t n = n_tiles - t0 < kPanelTiles ? n_tiles - t0 : kPanelTiles;
            std::memset(work.acc, 0, n * sizeof work.acc[0]);
            for (uint32_t b = 0; b < n_wide; ++b) {
                const uint32_t n_groups = n_blocks - 8 * b < 8 ? n_blocks - 8 * b : 8;
                for (uint32_t r = 0; r < padded; ++r) {
                    const uint32_t real = r < n_rows ? r : n_rows - 1;
                    const uint8_t* row = a.w + (r0 + real) * a.row_bytes;
                    const auto* block = reinterpret_cast<const Block*>(row) + 8 * b;
                    for (size_t p = 0; p < 8 * sizeof(Block); p += 64)
                        _mm_prefetch(reinterpret_cast<const char*>(block + 8) + p, _MM_HINT_T0);
                    for (uint32_t g = 0; g < n_groups; ++g)
                        unpack_q32<Format, kRows>(work.panel, r, block[g], g);
                }
                for (uint32_t t = 0; t < n; ++t)
                    for (uint32_t r = 0; r < padded; r += kR)
                        tile_q32<Format, kR, kRows>(work.panel, r, x[(t0 + t) * n_wide + b],
                                                    n_groups, work.acc[t] + r);
            }
            for (uint32_t t = 0; t < n; ++t)
                for (uint32_t r = 0; r < n_rows; ++r)
                    store_column(tree_of_vectors(work.acc[t][r]), a, t0 + t, r0 + r);
        }
    }
}

// ---- float weights: four vectors are the 32 lanes

struct F32 {
    static constexpr size_t kBytes = 4;
    static VecF load8(const uint8_t* p) {
        return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
    }
    static float load1(const uint8_t* p) {
        float value;
        std::memcpy(&value, p, sizeof value);
        return value;
    }
};
uint16_t load_u16(const uint8_t* p) {
    uint16_t value;
    std::memcpy(&value, p, sizeof value);
    return value;
}
struct F16 {
    static constexpr size_t kBytes = 2;
    static VecF load8(const uint8_t* p) { return _mm256_cvtph_ps(load128(p)); }
    static float load1(const uint8_t* p) { return f16_to_f32(load_u16(p)); }
};
struct BF16 {
    static constexpr size_t kBytes = 2;
    static VecF load8(const uint8_t* p) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16));
    }
    static float load1(const uint8_t* p) { return bf16_to_f32(load_u16(p)); }
};

float tree_sum32(const VecF v[4]) {
    return tree_sum(_mm256_add_ps(_mm256_add_ps(v[0], v[2]), _mm256_add_ps(v[1], v[3])));
}

template <class Format, uint32_t kR, uint32_t kT>
void float_block(const MatArgs& a, const float* x, size_t x_stride, uint32_t row, uint32_t token) {
    VecF acc[kR][kT][4];
    for (auto& rows : acc)
        for (auto& lanes : rows)
            for (VecF& each : lanes) each = _mm256_setzero_ps();
    const uint8_t* w = a.w + row * a.row_bytes;
    const float* in = x + token * x_stride;
    uint32_t i = 0;
    for (; i + 32 <= a.n_in; i += 32)
        for (uint32_t v = 0; v < 4; ++v)
            for (uint32_t r = 0; r < kR; ++r) {
                const VecF wv = Format::load8(w + r * a.row_bytes + (i + 8 * v) * Format::kBytes);
                for (uint32_t t = 0; t < kT; ++t)
                    acc[r][t][v] = _mm256_add_ps(
                        acc[r][t][v],
                        _mm256_mul_ps(wv, _mm256_loadu_ps(in + t * x_stride + i + 8 * v)));
            }
    for (uint32_t r = 0; r < kR; ++r)
        for (uint32_t t = 0; t < kT; ++t) {
            if (i < a.n_in) {
                float lane[32];
                for (int v = 0; v < 4; ++v) _mm256_storeu_ps(lane + 8 * v, acc[r][t][v]);
                for (uint32_t k = i; k < a.n_in; ++k)
                    lane[k - i] =
                        lane[k - i] + Format::load1(w + r * a.row_bytes + k * Format::kBytes) *
                                          in[t * x_stride + k];
                for (int v = 0; v < 4; ++v) acc[r][t][v] = _mm256_loadu_ps(lane + 8 * v);
            }
            a.y[(token + t) * a.y_stride + row + r] = tree_sum32(acc[r][t]);
        }
}

template <class Format>
void mat_float(const MatArgs& a, const float* x, size_t x_stride) {
    uint32_t r = 0;
    for (; r + 2 <= a.n_rows; r += 2) {
        if (a.n_tok == 1) {
            float_block<Format, 2, 1>(a, x, x_stride, r, 0);
            continue;
        }
        for (uint32_t row = r; row < r + 2; ++row) {
            uint32_t t = 0;
            for (; t + 3 <= a.n_tok; t += 3) float_block<Format, 1, 3>(a, x, x_stride, row, t);
            for (; t < a.n_tok; ++t) float_block<Format, 1, 1>(a, x, x_stride, row, t);
        }
    }
    for (; r < a.n_rows; ++r)
        for (uint32_t t = 0; t < a.n_tok; ++t) float_block<Format, 1, 1>(a, x, x_stride, r, t);
}

// ---- operators

constexpr uint32_t kInfinityBits = 0x7f800000u;
constexpr uint32_t kTinyBits = 0x0f800000u;

// n: a multiple of 32.
bool quantize_group(const float* x, uint32_t n, int8_t* q, float* d) {
    Vec largest = _mm256_setzero_si256();
    const Vec magnitude = _mm256_set1_epi32(0x7fffffff);
    for (uint32_t i = 0; i < n; i += 8)
        largest = _mm256_max_epi32(largest, _mm256_and_si256(load(x + i), magnitude));
    int32_t lane[8];
    _mm256_storeu_si256(reinterpret_cast<Vec*>(lane), largest);
    int32_t bits = 0;
    for (const int32_t each : lane) bits = each > bits ? each : bits;
    if (static_cast<uint32_t>(bits) >= kInfinityBits) return false;
    if (static_cast<uint32_t>(bits) < kTinyBits) {
        std::memset(q, 0, n);
        *d = 0.0f;
        return true;
    }
    const float top = bits_to_f32(static_cast<uint32_t>(bits));
    const VecF inverse = _mm256_set1_ps(127.0f / top);
    const Vec order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (uint32_t i = 0; i < n; i += 32) {
        Vec v[4];
        for (uint32_t k = 0; k < 4; ++k)
            v[k] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i + 8 * k), inverse));
        const Vec bytes =
            _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
        _mm256_storeu_si256(reinterpret_cast<Vec*>(q + i),
                            _mm256_permutevar8x32_epi32(bytes, order));
    }
    *d = top / 127.0f;
    return true;
}

void fill_sums(ActBlock& y) {
    const Vec ones8 = _mm256_set1_epi8(1), ones16 = _mm256_set1_epi16(1);
    for (int g = 0; g < 8; ++g) {
        // 32 bytes to 8 sums of four, then the sums of each half.
        const Vec fours =
            _mm256_madd_epi16(_mm256_maddubs_epi16(ones8, load(y.q + 32 * g)), ones16);
        const Vec eights = _mm256_hadd_epi32(fours, fours);
        const Vec halves = _mm256_hadd_epi32(eights, eights);
        const int low = _mm_cvtsi128_si32(_mm256_castsi256_si128(halves));
        const int high = _mm_cvtsi128_si32(_mm256_extracti128_si256(halves, 1));
        y.sums16[2 * g] = static_cast<int16_t>(low);
        y.sums16[2 * g + 1] = static_cast<int16_t>(high);
        y.sums32[g] = static_cast<int16_t>(low + high);
    }
}

bool quantize_q256(const float* x, uint32_t n, ActBlock* y) {
    bool finite = true;
    for (uint32_t i = 0; i < n; i += kActBlock, ++y) {
        float d = 0.0f;
        finite &= quantize_group(x + i, kActBlock, y->q, &d);
        _mm256_storeu_ps(y->d, _mm256_set1_ps(d));
        fill_sums(*y);
    }
    return finite;
}

bool quantize_q32(const float* x, uint32_t n, ActBlock* y) {
    bool finite = true;
    for (uint32_t i = 0; i < n; i += kActBlock, ++y) {
        const uint32_t groups = (n - i < kActBlock ? n - i : kActBlock) / 32;
        for (uint32_t g = 0; g < groups; ++g)
            finite &= quantize_group(x + i + 32 * g, 32, y->q + 32 * g, &y->d[g]);
        for (uint32_t g = groups; g < 8; ++g) {
            std::memset(y->q + 32 * g, 0, 32);
            y->d[g] = 0.0f;
        }
        fill_sums(*y);
    }
    return finite;
}

VecF exp8(VecF x) {
    using namespace exp_f32_constants;
    const VecF valid = _mm256_cmp_ps(x, _mm256_set1_ps(kLowest), _CMP_GE_OQ);
    x = _mm256_min_ps(x, _mm256_set1_ps(kHighest));
    const VecF round = _mm256_set1_ps(kRound);
    const VecF n =
        _mm256_sub_ps(_mm256_add_ps(_mm256_mul_ps(x, _mm256_set1_ps(kLog2E)), round), round);
    const VecF r = _mm256_sub_ps(_mm256_sub_ps(x, _mm256_mul_ps(n, _mm256_set1_ps(kLn2High))),
                                 _mm256_mul_ps(n, _mm256_set1_ps(kLn2Low)));
    VecF p = _mm256_set1_ps(kC7);
    for (const float c : {kC6, kC5, kC4, kC3, kC2})
        p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(c));
    p = _mm256_add_ps(_mm256_add_ps(_mm256_mul_ps(_mm256_mul_ps(p, r), r), r),
                      _mm256_set1_ps(1.0f));
    const Vec exponent =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_and_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(exponent)), valid);
}

bool rms_norm(const float* x, const float* w, uint32_t n, float eps, float* y) {
    VecF acc[4];
    for (VecF& each : acc) each = _mm256_setzero_ps();
    uint32_t i = 0;
    for (; i + 32 <= n; i += 32)
        for (uint32_t v = 0; v < 4; ++v) {
            const VecF in = _mm256_loadu_ps(x + i + 8 * v);
            acc[v] = _mm256_add_ps(acc[v], _mm256_mul_ps(in, in));
        }
    if (i < n) {
        float lane[32];
        for (int v = 0; v < 4; ++v) _mm256_storeu_ps(lane + 8 * v, acc[v]);
        for (uint32_t k = i; k < n; ++k) lane[k - i] = lane[k - i] + x[k] * x[k];
        for (int v = 0; v < 4; ++v) acc[v] = _mm256_loadu_ps(lane + 8 * v);
    }
    const float sum = tree_sum32(acc);
    if (!(sum < __builtin_inff())) return false;
    const float factor = 1.0f / __builtin_sqrtf(sum / static_cast<float>(n) + eps);
    for (i = 0; i + 8 <= n; i += 8)
        _mm256_storeu_ps(
            y + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(factor)),
                                 _mm256_loadu_ps(w + i)));
    for (; i < n; ++i) y[i] = (x[i] * factor) * w[i];
    return true;
}

void add(float* x, const float* y, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) x[i] = x[i] + y[i];
}

void scale(float* x, float factor, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) x[i] = x[i] * factor;
}

VecF swiglu8(VecF x, VecF up) {
    const VecF sign = _mm256_set1_ps(-0.0f), one = _mm256_set1_ps(1.0f);
    const VecF e = exp8(_mm256_or_ps(x, sign));
    const VecF positive = _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_GE_OQ);
    const VecF sigmoid = _mm256_div_ps(_mm256_blendv_ps(e, one, positive), _mm256_add_ps(one, e));
    return _mm256_mul_ps(_mm256_mul_ps(x, sigmoid), up);
}

void swiglu(float* gate, const float* up, uint32_t n) {
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(gate + i, swiglu8(_mm256_loadu_ps(gate + i), _mm256_loadu_ps(up + i)));
    if (i == n) return;
    float g[8] = {}, u[8] = {};
    std::memcpy(g, gate + i, (n - i) * sizeof(float));
    std::memcpy(u, up + i, (n - i) * sizeof(float));
    _mm256_storeu_ps(g, swiglu8(_mm256_loadu_ps(g), _mm256_loadu_ps(u)));
    std::memcpy(gate + i, g, (n - i) * sizeof(float));
}

void to_f16(const float* x, uint16_t* y, uint32_t n) {
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; ++i) y[i] = f32_to_f16(x[i]);
}

// ---- attention

// p[query][slot] = sum over d, in order, of q[d] * k[d][slot].
template <uint32_t kQ>
void scores(const AttnPage& page, uint32_t n_k, const AttnQuery* queries, float (*p)[kPage]) {
    for (uint32_t j = 0; j < kPage; j += 16) {
        VecF acc[kQ][2];
        for (auto& pair : acc) pair[0] = pair[1] = _mm256_setzero_ps();
        for (uint32_t d = 0; d < n_k; ++d) {
            const VecF k0 = _mm256_cvtph_ps(load128(page.k + d * kPage + j));
            const VecF k1 = _mm256_cvtph_ps(load128(page.k + d * kPage + j + 8));
            for (uint32_t i = 0; i < kQ; ++i) {
                const VecF q = _mm256_set1_ps(queries[i].q[d]);
                acc[i][0] = _mm256_add_ps(acc[i][0], _mm256_mul_ps(q, k0));
                acc[i][1] = _mm256_add_ps(acc[i][1], _mm256_mul_ps(q, k1));
            }
        }
        for (uint32_t i = 0; i < kQ; ++i) {
            _mm256_storeu_ps(p[i] + j, acc[i][0]);
            _mm256_storeu_ps(p[i] + j + 8, acc[i][1]);
        }
    }
}

// Turns scores into weights; updates m and l; gives the factor for what was summed before.
float soften(AttnQuery& query, float* p) {
    float m = query.m;
    for (uint32_t j = query.first; j < query.end; ++j) m = p[j] > m ? p[j] : m;
    const Vec lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const Vec first = _mm256_set1_epi32(static_cast<int>(query.first) - 1);
    const Vec end = _mm256_set1_epi32(static_cast<int>(query.end));
    VecF sum = _mm256_setzero_ps();
    for (int j = 0; j < kPage; j += 8) {
        const Vec slot = _mm256_add_epi32(lanes, _mm256_set1_epi32(j));
        const Vec visible =
            _mm256_and_si256(_mm256_cmpgt_epi32(slot, first), _mm256_cmpgt_epi32(end, slot));
        const VecF e = exp8(_mm256_sub_ps(_mm256_loadu_ps(p + j), _mm256_set1_ps(m)));
        const VecF kept = _mm256_and_ps(e, _mm256_castsi256_ps(visible));
        _mm256_storeu_ps(p + j, kept);
        sum = _mm256_add_ps(sum, kept);
    }
    const float keep = exp_f32(query.m - m);
    query.m = m;
    query.l = query.l * keep + tree_sum(sum);
    return keep;
}

// o[i] += p[j] * v[j][i] for j in [begin, end), 8 * kV dimensions from i on, kQ queries.
template <uint32_t kQ, uint32_t kV>
void weigh(const AttnPage& page, uint32_t n_v, AttnQuery* queries, const float (*p)[kPage],
           uint32_t i, uint32_t begin, uint32_t end) {
    VecF acc[kQ][kV];
    for (uint32_t q = 0; q < kQ; ++q)
        for (uint32_t v = 0; v < kV; ++v) acc[q][v] = _mm256_loadu_ps(queries[q].o + i + 8 * v);
    for (uint32_t j = begin; j < end; ++j) {
        VecF in[kV];
        for (uint32_t v = 0; v < kV; ++v)
            in[v] = _mm256_cvtph_ps(load128(page.v + j * n_v + i + 8 * v));
        for (uint32_t q = 0; q < kQ; ++q) {
            const VecF weight = _mm256_set1_ps(p[q][j]);
            for (uint32_t v = 0; v < kV; ++v)
                acc[q][v] = _mm256_add_ps(acc[q][v], _mm256_mul_ps(weight, in[v]));
        }
    }
    for (uint32_t q = 0; q < kQ; ++q)
        for (uint32_t v = 0; v < kV; ++v) _mm256_storeu_ps(queries[q].o + i + 8 * v, acc[q][v]);
}

template <uint32_t kQ>
void weigh_all(const AttnPage& page, uint32_t n_v, AttnQuery* queries, const float (*p)[kPage],
               uint32_t begin, uint32_t end) {
    if (begin >= end) return;
    uint32_t i = 0;
    for (; i + 16 <= n_v; i += 16) weigh<kQ, 2>(page, n_v, queries, p, i, begin, end);
    for (; i + 8 <= n_v; i += 8) weigh<kQ, 1>(page, n_v, queries, p, i, begin, end);
    for (; i < n_v; ++i)
        for (uint32_t q = 0; q < kQ; ++q)
            for (uint32_t j = begin; j < end; ++j)
                queries[q].o[i] = queries[q].o[i] + p[q][j] * f16_to_f32(page.v[j * n_v + i]);
}

template <uint32_t kQ>
void attn_group(const AttnPage& page, uint32_t n_k, uint32_t n_v, AttnQuery* queries) {
    alignas(32) float p[kQ][kPage];
    scores<kQ>(page, n_k, queries, p);
    uint32_t begin = 0, end = kPage;
    for (uint32_t q = 0; q < kQ; ++q) {
        scale(queries[q].o, soften(queries[q], p[q]), n_v);
        begin = queries[q].first > begin ? queries[q].first : begin;
        end = queries[q].end < end ? queries[q].end : end;
    }
    if (begin >= end) begin = end = 0;  // nothing in common: each on its own
    // Slots in order for each query: what only some see stands before and after the common part.
    for (uint32_t q = 0; q < kQ && begin < end; ++q)
        weigh_all<1>(page, n_v, queries + q, p + q, queries[q].first, begin);
    weigh_all<kQ>(page, n_v, queries, p, begin, end);
    for (uint32_t q = 0; q < kQ; ++q)
        weigh_all<1>(page, n_v, queries + q, p + q, begin < end ? end : queries[q].first,
                     queries[q].end);
}

void attn_page(const AttnPage& page, uint32_t n_k, uint32_t n_v, AttnQuery* queries, uint32_t n_q) {
    uint32_t i = 0;
    for (; i + 4 <= n_q; i += 4) attn_group<4>(page, n_k, n_v, queries + i);
    for (; i + 2 <= n_q; i += 2) attn_group<2>(page, n_k, n_v, queries + i);
    for (; i < n_q; ++i) attn_group<1>(page, n_k, n_v, queries + i);
}

}  // namespace

void fill_avx2(Kernels& table) {
    table.quantize_q256 = quantize_q256;
    table.quantize_q32 = quantize_q32;
    const auto matrix = [&](TensorType type, MatSmall small, MatLarge large) {
        table.mat_small[static_cast<size_t>(type)] = small;
        table.mat_large[static_cast<size_t>(type)] = large;
    };
    table.has_large = true;
    matrix(TensorType::q2_k, small_q256<Q2K>(), large_q256<Q2K>);
    matrix(TensorType::q3_k, small_q256<Q3K>(), large_q256<Q3K>);
    matrix(TensorType::q4_k, small_q256<Q4K>(), large_q256<Q4K>);
    matrix(TensorType::q5_k, small_q256<Q5K>(), large_q256<Q5K>);
    matrix(TensorType::q6_k, small_q256<Q6K>(), large_q256<Q6K>);
    matrix(TensorType::iq4_xs, small_q256<IQ4XS>(), large_q256<IQ4XS>);
    matrix(TensorType::q4_0, small_q32<Q4_0>(), large_q32<Q4_0>);
    matrix(TensorType::q4_1, small_q32<Q4_1>(), large_q32<Q4_1>);
    matrix(TensorType::q5_0, small_q32<Q5_0>(), large_q32<Q5_0>);
    matrix(TensorType::q5_1, small_q32<Q5_1>(), large_q32<Q5_1>);
    matrix(TensorType::q8_0, small_q32<Q8_0>(), large_q32<Q8_0>);
    matrix(TensorType::iq4_nl, small_q32<IQ4NL>(), large_q32<IQ4NL>);
    table.mat_float[static_cast<size_t>(TensorType::f32)] = mat_float<F32>;
    table.mat_float[static_cast<size_t>(TensorType::f16)] = mat_float<F16>;
    table.mat_float[static_cast<size_t>(TensorType::bf16)] = mat_float<BF16>;
    table.rms_norm = rms_norm;
    table.add = add;
    table.scale = scale;
    table.swiglu = swiglu;
    table.to_f16 = to_f16;
    table.attn_page = attn_page;
}

}  // namespace picolm
