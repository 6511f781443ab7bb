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

#include "kernels/avx2_common.inc"

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
constexpr uint32_t kTileTokens = 8;

struct alignas(64) ActTile {
    int8_t q[kActBlock / 4][kTileTokens][4];
    int16_t sums16[8][kTileTokens][2];  // the pair of 16-sums of each 32
    int16_t sums32[4][kTileTokens][2];  // pairs of 32-sums
    float d[8][kTileTokens];            // [32-block][token]; q256: all rows equal
};
static_assert(sizeof(ActTile) == kTileTokens * (256 + 32 + 16 + 32));

void pack(const ActBlock* x, size_t stride, uint32_t n_blocks, uint32_t n_tok, uint8_t* tiles) {
    auto* y = reinterpret_cast<ActTile*>(tiles);
    for (uint32_t b = 0; b < n_blocks; ++b, ++y) {
        if (n_tok < kTileTokens) std::memset(y, 0, sizeof *y);
        for (uint32_t t = 0; t < n_tok; ++t) {
            const ActBlock& in = x[t * stride + b];
            for (int k = 0; k < kActBlock / 4; ++k) std::memcpy(y->q[k][t], in.q + 4 * k, 4);
            for (int g = 0; g < 8; ++g) {
                std::memcpy(y->sums16[g][t], in.sums16 + 2 * g, 4);
                y->d[g][t] = in.d[g];
            }
            for (int g = 0; g < 4; ++g) std::memcpy(y->sums32[g][t], in.sums32 + 2 * g, 4);
        }
    }
}

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
void large_q256(const MatArgs& a, const uint8_t* tiles, uint8_t* scratch) {
    using Block = typename Format::Block;
    constexpr uint32_t kRows = 16, kR = 4;
    struct Work {
        alignas(64) Panel<kRows> panel;
        VecF acc[kPanelTiles][kRows];
    };
    static_assert(sizeof(Work) <= kPanelBytes);
    Work& work = *reinterpret_cast<Work*>(scratch);
    const auto* x = reinterpret_cast<const ActTile*>(tiles);
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
void large_q32(const MatArgs& a, const uint8_t* tiles, uint8_t* scratch) {
    using Block = typename Format::Block;
    constexpr uint32_t kRows = 8, kR = 4;
    struct Work {
        alignas(64) Panel<kRows> panel;
        VecF acc[kPanelTiles][kRows][8];
    };
    static_assert(sizeof(Work) <= kPanelBytes);
    Work& work = *reinterpret_cast<Work*>(scratch);
    const auto* x = reinterpret_cast<const ActTile*>(tiles);
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

}  // namespace

void fill_avx2(Kernels& table) {
    fill_avx2_operators(table);
    const auto matrix = [&](TensorType type, MatSmall small, MatLarge large) {
        table.mat_small[static_cast<size_t>(type)] = small;
        table.large.mat[static_cast<size_t>(type)] = large;
    };
    table.large.tile_tokens = kTileTokens;
    table.large.tile_bytes = sizeof(ActTile);
    table.large.from_tokens = kMaxSmallBatch + 1;
    table.large.pack = pack;
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
}

}  // namespace picolm
