// AVX-512 F, BW, VL, DQ and VNNI: matrices with quantised weights. Small batches take four rows
// (32- element formats: two) at a time; in large ones tokens are the lanes. Sums are int32 and
// therefore exact in any order; the float steps follow generic.cpp. Everything is in an anonymous
// namespace: nothing compiled here may be shared with other files.
#include <immintrin.h>

#include <cstddef>
#include <cstring>

#include "kernels/blocks.h"
#include "kernels/half.h"
#include "kernels/levels.h"

namespace picolm {
namespace {

#include "kernels/avx512_common.inc"
#include "kernels/avx512_formats.inc"
#include "kernels/avx512_tile.inc"

// ---- small batch, 256-blocks: the same block of four rows at a time

// Adds the four lanes of 128 bits.
PICOLM_INLINE __m128i fold_lanes(Vec v) {
    const __m256i half =
        _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
    return _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

// Lane i of each 128 bits: a part of the sum over v[i].
PICOLM_INLINE Vec sum_within_lanes(const Vec v[4]) {
    const Vec a =
        _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    const Vec b =
        _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

// Per row (lane of 128 bits) the sum over its words times the sums of the activations.
template <class Format>
PICOLM_INLINE __m128i dot_sums(const Vec words[2], const ActBlock& x) {
    Vec v;
    if (Format::kSub == 32) {
        v = _mm512_madd_epi16(words[0], repeat128(x.sums32));
    } else {
        v = _mm512_madd_epi16(words[0], repeat128(x.sums16));
        v = _mm512_dpwssd_epi32(v, words[1], repeat128(x.sums16 + 8));
    }
    v = _mm512_add_epi32(v, _mm512_shuffle_epi32(v, static_cast<_MM_PERM_ENUM>(0x4e)));
    return lane_heads(
        _mm512_add_epi32(v, _mm512_shuffle_epi32(v, static_cast<_MM_PERM_ENUM>(0xb1))));
}

// Adds factor * (sum over pairs of q * x); the sign of q is moved to x where q is signed.
template <bool kSigned>
PICOLM_INLINE Vec add_products(Vec sum, Vec q, __mmask64 negative, Vec x, Vec factor) {
    if (kSigned) x = _mm512_mask_sub_epi8(x, negative, _mm512_setzero_si512(), x);
    return _mm512_dpwssd_epi32(sum, _mm512_maddubs_epi16(q, x), factor);
}

// One block of four rows times kTok tokens: lanes of sums[t][r] that add up to the dot product.
template <class Format, int kTok>
PICOLM_INLINE void dot_rows(const typename Format::Block* const block[4],
                            const int16_t (*scale)[4][8], const ActBlock* x, size_t x_stride,
                            Vec sums[kTok][4]) {
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
        Vec q[4], factor[4];
        __mmask64 negative[4] = {};
        Format::unpack(*block[r], q);
        spread_scales<Format>(scale, r, factor);
        if (Format::kSigned)
            for (int k = 0; k < 4; ++k) {
                negative[k] = _mm512_movepi8_mask(q[k]);
                q[k] = _mm512_abs_epi8(q[k]);
            }
#pragma GCC unroll 4
        for (size_t t = 0; t < kTok; ++t) {
            Vec sum = _mm512_setzero_si512();
#pragma GCC unroll 4
            for (int k = 0; k < 4; ++k)
                sum = add_products<Format::kSigned>(sum, q[k], negative[k],
                                                    load(x[t * x_stride].q + 64 * k), factor[k]);
            sums[t][r] = sum;
        }
    }
}

// n_rows <= 4 rows from `w` on; missing ones repeat the last.
template <class Format, int kTok>
void rows_q256(const MatArgs& a, const ActBlock* x, const uint8_t* w, uint32_t n_rows, float* y) {
    using Block = typename Format::Block;
    const uint32_t n_blocks = a.n_in / kQK;
    const uint8_t* row[4];
    for (uint32_t r = 0; r < 4; ++r) row[r] = w + (r < n_rows ? r : n_rows - 1) * a.row_bytes;
    const uint8_t* ahead = w + 4 * a.row_bytes;
    __m128 acc[kTok];
    for (__m128& each : acc) each = _mm_setzero_ps();
    for (uint32_t b = 0; b < n_blocks; ++b, ++x) {
        prefetch(ahead, 4 * sizeof(Block));
        ahead += 4 * sizeof(Block);
        const Block* block[4];
        for (int r = 0; r < 4; ++r) block[r] = reinterpret_cast<const Block*>(row[r]) + b;
        FourScales s;
        Format::scales(block, s);
        alignas(64) int16_t scale[2][4][8];
        store(scale[0], s.scale[0]);
        if (Format::kSub == 16) store(scale[1], s.scale[1]);
        Vec sums[kTok][4];
        dot_rows<Format, kTok>(block, scale, x, n_blocks, sums);
        for (size_t t = 0; t < kTok; ++t) {
            const ActBlock& in = x[t * n_blocks];
            __m128i sum = fold_lanes(sum_within_lanes(sums[t]));
            if (Format::kOffset)
                sum = _mm_sub_epi32(sum, _mm_slli_epi32(dot_sums<Format>(s.scale, in),
                                                        __builtin_ctz(Format::kOffset | 1024)));
            __m128 term = _mm_mul_ps(s.d, _mm_cvtepi32_ps(sum));
            if (Format::kHasMin)
                term = _mm_sub_ps(term,
                                  _mm_mul_ps(s.dmin, _mm_cvtepi32_ps(dot_sums<Format>(s.min, in))));
            acc[t] = _mm_add_ps(acc[t], _mm_mul_ps(_mm_set1_ps(in.d[0]), term));
        }
    }
    for (size_t t = 0; t < kTok; ++t)
        _mm_mask_storeu_ps(y + t * a.y_stride, static_cast<__mmask8>(first_lanes(n_rows)), acc[t]);
}

// ---- small batch, 32-blocks: eight blocks of two rows are the lanes of the float steps

// Up to eight blocks of two rows.
template <class Format, int kTok>
PICOLM_INLINE void step_q32(const typename Format::Block* const row[2], uint32_t n,
                            const ActBlock* x, size_t x_stride, VecF acc[kTok]) {
    Vec parts[kTok][2];
    __m128i d[2], m[2];
#pragma GCC unroll 2
    for (int r = 0; r < 2; ++r) {
        Vec q[4];
        unpack_row<Format>(row[r], n, q, d[r], m[r]);
#pragma GCC unroll 4
        for (size_t t = 0; t < kTok; ++t) {
            Vec v[4];
            for (int k = 0; k < 4; ++k)
                v[k] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), q[k],
                                           load(x[t * x_stride].q + 64 * k));
            parts[t][r] = sum_within_lanes(v);
        }
    }
    const VecF scale = _mm512_cvtph_ps(_mm256_set_m128i(d[1], d[0]));
    VecF min = _mm512_setzero_ps();
    if (Format::kHasMin) min = _mm512_cvtph_ps(_mm256_set_m128i(m[1], m[0]));
    const __mmask16 valid = static_cast<__mmask16>(((1u << n) - 1) * 0x101u);
    for (size_t t = 0; t < kTok; ++t) {
        const ActBlock& in = x[t * x_stride];
        // Even blocks are in the lanes 0 and 1 of 128 bits, odd ones in 2 and 3.
        const Vec sum = _mm512_add_epi32(_mm512_shuffle_i32x4(parts[t][0], parts[t][1], 0x88),
                                         _mm512_shuffle_i32x4(parts[t][0], parts[t][1], 0xdd));
        Vec dot = _mm512_permutexvar_epi32(
            _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15), sum);
        const __m128i sums = load128(in.sums32);
        const Vec act_sums = _mm512_cvtepi16_epi32(_mm256_set_m128i(sums, sums));
        if (Format::kOffset)
            dot = _mm512_sub_epi32(
                dot, _mm512_slli_epi32(act_sums, __builtin_ctz(Format::kOffset | 1024)));
        VecF term = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(dot));
        if (Format::kHasMin)
            term = _mm512_add_ps(term, _mm512_mul_ps(min, _mm512_cvtepi32_ps(act_sums)));
        const VecF da = _mm512_castsi512_ps(repeat256(in.d));
        acc[t] = _mm512_mask_add_ps(acc[t], valid, acc[t], _mm512_mul_ps(da, term));
    }
}

// The ragged end of two rows for one token. Not a part of its callers: it runs once per row.
template <class Format>
[[gnu::noinline]] VecF last_q32(const typename Format::Block* a, const typename Format::Block* b,
                                uint32_t n, const ActBlock* x, VecF acc) {
    const typename Format::Block* const row[2] = {a, b};
    step_q32<Format, 1>(row, n, x, 0, &acc);
    return acc;
}

// n_rows <= 2 rows from `w` on; a missing one repeats the other.
template <class Format, int kTok>
void rows_q32(const MatArgs& a, const ActBlock* x, const uint8_t* w, uint32_t n_rows, float* y) {
    using Block = typename Format::Block;
    const uint32_t n_blocks = a.n_in / kQK32;
    const size_t x_stride = act_blocks(a.n_in);
    const Block* row[2] = {reinterpret_cast<const Block*>(w),
                           reinterpret_cast<const Block*>(w + (n_rows - 1) * a.row_bytes)};
    const uint8_t* ahead = w + 2 * a.row_bytes;
    VecF acc[kTok];
    for (VecF& each : acc) each = _mm512_setzero_ps();
    uint32_t b = 0;
    for (; b + 8 <= n_blocks; b += 8, ++x) {
        prefetch(ahead, 16 * sizeof(Block));
        ahead += 16 * sizeof(Block);
        step_q32<Format, kTok>(row, 8, x, x_stride, acc);
        for (const Block*& each : row) each += 8;
    }
    for (size_t t = 0; t < kTok; ++t) {
        if (b < n_blocks)
            acc[t] = last_q32<Format>(row[0], row[1], n_blocks - b, x + t * x_stride, acc[t]);
        y[t * a.y_stride] = tree_sum(lower_half(acc[t]));
        if (n_rows == 2) y[t * a.y_stride + 1] = tree_sum(upper_half(acc[t]));
    }
}

using Rows = void (*)(const MatArgs&, const ActBlock*, const uint8_t*, uint32_t, float*);

// A token count becomes a sequence of fixed ones, while the rows are in the cache.
template <uint32_t kRows, Rows kRows1, Rows kRows2, Rows kRows4>
void small_batch(const MatArgs& a, const ActBlock* x) {
    const size_t x_stride = act_blocks(a.n_in);
    for (uint32_t r = 0; r < a.n_rows; r += kRows) {
        const uint32_t n_rows = a.n_rows - r < kRows ? a.n_rows - r : kRows;
        const uint8_t* w = a.w + r * a.row_bytes;
        for (uint32_t t = 0; t < a.n_tok;) {
            const uint32_t left = a.n_tok - t;
            const uint32_t n = left >= 4 ? 4 : left >= 2 ? 2 : 1;
            const Rows rows = n == 4 ? kRows4 : n == 2 ? kRows2 : kRows1;
            rows(a, x + t * x_stride, w, n_rows, a.y + t * a.y_stride + r);
            t += n;
        }
    }
}

template <class Format>
constexpr MatSmall small_q256() {
    return small_batch<4, rows_q256<Format, 1>, rows_q256<Format, 2>, rows_q256<Format, 4>>;
}
template <class Format>
constexpr MatSmall small_q32() {
    return small_batch<2, rows_q32<Format, 1>, rows_q32<Format, 2>, rows_q32<Format, 4>>;
}

// ---- large batch

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

constexpr uint32_t kPanelTiles = 8;  // tiles that share one unpacking: 128 tokens

// One 256-block of 16 rows.
struct alignas(64) PanelQ256 {
    uint8_t q[16][kQK];
    int32_t factor[16][16];  // scales; where sums fit int16, in the lower half alone
    int16_t back[16][16];    // kBack times the scales
    int16_t min[16][16];
    float d[16];
    float dmin[16];
};

template <class Format>
PICOLM_INLINE void panel_scales(PanelQ256& p, int r0, const FourScales& s) {
    alignas(64) int16_t scale[2][4][8] = {}, min[2][4][8] = {};
    for (int h = 0; h < (Format::kSub == 16 ? 2 : 1); ++h) {
        store(scale[h], s.scale[h]);
        if (Format::kHasMin) store(min[h], s.min[h]);
    }
    for (int r = 0; r < 4; ++r) {
        const __m256i words = _mm256_set_m128i(load128(scale[1][r]), load128(scale[0][r]));
        store(p.factor[r0 + r],
              Format::kFits ? _mm512_cvtepu16_epi32(words) : _mm512_cvtepi16_epi32(words));
        if (Format::kBack)
            _mm256_store_si256(reinterpret_cast<__m256i*>(p.back[r0 + r]),
                               _mm256_mullo_epi16(words, _mm256_set1_epi16(Format::kBack)));
        if (Format::kHasMin)
            _mm256_store_si256(reinterpret_cast<__m256i*>(p.min[r0 + r]),
                               _mm256_set_m128i(load128(min[1][r]), load128(min[0][r])));
    }
    _mm_store_ps(p.d + r0, s.d);
    if (Format::kHasMin) _mm_store_ps(p.dmin + r0, s.dmin);
}

template <class Format>
void unpack_panel(PanelQ256& p, const uint8_t* const row[16], uint32_t b, size_t ahead) {
    using Block = typename Format::Block;
    for (int r0 = 0; r0 < 16; r0 += 4) {
        const Block* block[4];
        for (int r = 0; r < 4; ++r) {
            block[r] = reinterpret_cast<const Block*>(row[r0 + r]) + b;
            prefetch(reinterpret_cast<const uint8_t*>(block[r]) + ahead, sizeof(Block) + 63);
            Vec q[4];
            Format::unpack(*block[r], q);
            for (int k = 0; k < 4; ++k)
                store(p.q[r0 + r] + 64 * k, Format::kSigned ? flip_sign(q[k]) : q[k]);
        }
        FourScales s;
        Format::scales(block, s);
        panel_scales<Format>(p, r0, s);
    }
}

// acc[r][t]: kGroups * 4 weights of each row (256 bytes apart) times those of each tile, on top of
// start[t].
template <int kGroups, int kR, int kT>
PICOLM_INLINE void multiply(const uint8_t* q, const int8_t (*const x[kT])[kTileTokens][4],
                            const Vec start[kT], Vec acc[kR][kT]) {
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
        Vec in[kT];
        for (int t = 0; t < kT; ++t) in[t] = load(x[t][g]);
#pragma GCC unroll 4
        for (int r = 0; r < kR; ++r) {
            const Vec w = repeat32(q + r * kQK + 4 * g);
#pragma GCC unroll 2
            for (int t = 0; t < kT; ++t)
                acc[r][t] = _mm512_dpbusd_epi32(g == 0 ? start[t] : acc[r][t], w, in[t]);
        }
    }
}

// -kStart times the sum of the activations of part i (of kPart) of each token.
template <int kStart, int kPart>
PICOLM_INLINE Vec start_of(const ActTile& x, int i) {
    if (kStart == 0) return _mm512_setzero_si512();
    if (kPart == 32) return _mm512_madd_epi16(load(x.sums16[i]), _mm512_set1_epi16(-kStart));
    const int32_t low = (-kStart) & 0xffff;
    return _mm512_madd_epi16(load(x.sums16[i / 2]),
                             _mm512_set1_epi32(i % 2 ? -kStart * 65536 : low));
}

// One block of kR rows against kT tiles: acc[t][r] += da * (d * S - dmin * M).
template <class Format, int kR, int kT>
PICOLM_INLINE void tile_q256(const PanelQ256& p, int row, const ActTile* const x[kT],
                             VecF* const acc[kT]) {
    constexpr int kPart = Format::kPart;
    constexpr int kParts32 = 32 / kPart;
    Vec sum[kR][kT];
    for (int r = 0; r < kR; ++r)
        for (int t = 0; t < kT; ++t)
            sum[r][t] = Format::kBack ? pair_sums<4>(x[t]->sums32, p.back[row + r])
                                      : _mm512_setzero_si512();
    for (int g = 0; g < 8; ++g) {  // 32 weights each
#pragma GCC unroll 2
        for (int half = 0; half < kParts32; ++half) {
            const int i = g * kParts32 + half, s = i * kPart / Format::kSub;
            Vec start[kT], part[kR][kT];
            const int8_t(*in[kT])[kTileTokens][4];
            for (int t = 0; t < kT; ++t) {
                start[t] = start_of<Format::kStart, kPart>(*x[t], i);
                in[t] = x[t]->q + i * kPart / 4;
            }
            multiply<kPart / 4, kR, kT>(p.q[row] + i * kPart, in, start, part);
#pragma GCC unroll 4
            for (int r = 0; r < kR; ++r) {
                const Vec factor = _mm512_set1_epi32(p.factor[row + r][s]);
#pragma GCC unroll 2
                for (int t = 0; t < kT; ++t)
                    sum[r][t] =
                        Format::kFits
                            ? _mm512_dpwssd_epi32(sum[r][t], part[r][t], factor)
                            : _mm512_add_epi32(sum[r][t], _mm512_mullo_epi32(part[r][t], factor));
            }
        }
    }
    for (int r = 0; r < kR; ++r)
        for (int t = 0; t < kT; ++t) {
            VecF term = _mm512_mul_ps(_mm512_set1_ps(p.d[row + r]), _mm512_cvtepi32_ps(sum[r][t]));
            if (Format::kHasMin) {
                const Vec mins = Format::kSub == 16 ? pair_sums<8>(x[t]->sums16, p.min[row + r])
                                                    : pair_sums<4>(x[t]->sums32, p.min[row + r]);
                term = _mm512_sub_ps(
                    term, _mm512_mul_ps(_mm512_set1_ps(p.dmin[row + r]), _mm512_cvtepi32_ps(mins)));
            }
            acc[t][r] = _mm512_add_ps(acc[t][r], _mm512_mul_ps(_mm512_load_ps(x[t]->d[0]), term));
        }
}

template <class Format>
void large_q256(const MatArgs& a, const uint8_t* tiles, uint8_t* scratch) {
    constexpr int kRows = 16, kR = 4;
    struct Work {
        PanelQ256 panel;
        VecF acc[kPanelTiles][kRows];
    };
    static_assert(sizeof(Work) <= kPanelBytes);
    Work& work = *reinterpret_cast<Work*>(scratch);
    const auto* x = reinterpret_cast<const ActTile*>(tiles);
    const uint32_t n_blocks = a.n_in / kQK, n_tiles = (a.n_tok + kTileTokens - 1) / kTileTokens;
    for (uint32_t r0 = 0; r0 < a.n_rows; r0 += kRows) {
        const uint32_t n_rows = a.n_rows - r0 < kRows ? a.n_rows - r0 : kRows;
        const uint8_t* row[kRows];
        row_pointers<kRows>(a, r0, row);
        for (uint32_t t0 = 0; t0 < n_tiles; t0 += kPanelTiles) {
            const uint32_t n = n_tiles - t0 < kPanelTiles ? n_tiles - t0 : kPanelTiles;
            std::memset(work.acc, 0, n * sizeof work.acc[0]);
            for (uint32_t b = 0; b < n_blocks; ++b) {
                unpack_panel<Format>(
                    work.panel, row, b,
                    bytes_ahead(a, kRows, b, n_blocks, sizeof(typename Format::Block)));
                const ActTile* in = x + t0 * n_blocks + b;
                uint32_t t = 0;
                for (; t + 2 <= n; t += 2) {
                    const ActTile* const two[] = {in + t * n_blocks, in + (t + 1) * n_blocks};
                    for (int r = 0; r < kRows; r += kR) {
                        VecF* const acc[] = {work.acc[t] + r, work.acc[t + 1] + r};
                        tile_q256<Format, kR, 2>(work.panel, r, two, acc);
                    }
                }
                for (int r = 0; t < n && r < kRows; r += kR) {
                    const ActTile* const one[] = {in + t * n_blocks};
                    VecF* const acc[] = {work.acc[t] + r};
                    tile_q256<Format, kR, 1>(work.panel, r, one, acc);
                }
            }
            for (uint32_t t = 0; t < n; ++t) store_tile(work.acc[t], a, t0 + t, r0, n_rows);
        }
    }
}

// Eight 32-blocks of 8 rows.
struct alignas(64) PanelQ32 {
    uint8_t q[8][kQK];
    float d[8][8];
    float m[8][8];
};

template <class Format>
void unpack_panel(PanelQ32& p, const uint8_t* const row[8], uint32_t b, uint32_t n, size_t ahead) {
    using Block = typename Format::Block;
    for (int r = 0; r < 8; ++r) {
        const Block* block = reinterpret_cast<const Block*>(row[r]) + b;
        prefetch(reinterpret_cast<const uint8_t*>(block) + ahead, 8 * sizeof(Block));
        Vec q[4];
        __m128i d, m;
        unpack_row<Format>(block, n, q, d, m);
        for (int k = 0; k < 4; ++k) store(p.q[r] + 64 * k, q[k]);
        _mm256_store_ps(p.d[r], _mm256_cvtph_ps(d));
        if (Format::kHasMin) _mm256_store_ps(p.m[r], _mm256_cvtph_ps(m));
    }
}

// n 32-blocks of kR rows against kT tiles; acc: [row][8 accumulators] of each tile.
template <class Format, int kR, int kT>
PICOLM_INLINE void tile_q32(const PanelQ32& p, int row, const ActTile* const x[kT], uint32_t n,
                            VecF (*const acc[kT])[8]) {
    for (uint32_t g = 0; g < n; ++g) {
        Vec start[kT], part[kR][kT];
        VecF act_sums[kT];
        const int8_t(*in[kT])[kTileTokens][4];
        for (int t = 0; t < kT; ++t) {
            start[t] = start_of<Format::kOffset, 32>(*x[t], static_cast<int>(g));
            if (Format::kHasMin)
                act_sums[t] = _mm512_cvtepi32_ps(
                    _mm512_madd_epi16(load(x[t]->sums16[g]), _mm512_set1_epi16(1)));
            in[t] = x[t]->q + 8 * g;
        }
        multiply<8, kR, kT>(p.q[row] + 32 * g, in, start, part);
        for (int r = 0; r < kR; ++r)
            for (int t = 0; t < kT; ++t) {
                VecF term =
                    _mm512_mul_ps(_mm512_set1_ps(p.d[row + r][g]), _mm512_cvtepi32_ps(part[r][t]));
                if (Format::kHasMin)
                    term = _mm512_add_ps(
                        term, _mm512_mul_ps(_mm512_set1_ps(p.m[row + r][g]), act_sums[t]));
                acc[t][r][g] =
                    _mm512_add_ps(acc[t][r][g], _mm512_mul_ps(_mm512_load_ps(x[t]->d[g]), term));
            }
    }
}

template <class Format>
void large_q32(const MatArgs& a, const uint8_t* tiles, uint8_t* scratch) {
    constexpr int kRows = 8, kR = 4;
    struct Work {
        PanelQ32 panel;
        VecF acc[kPanelTiles][kRows][8];
    };
    static_assert(sizeof(Work) <= kPanelBytes);
    Work& work = *reinterpret_cast<Work*>(scratch);
    const auto* x = reinterpret_cast<const ActTile*>(tiles);
    const uint32_t n_blocks = a.n_in / kQK32, n_tiles = (a.n_tok + kTileTokens - 1) / kTileTokens;
    const uint32_t n_wide = static_cast<uint32_t>(act_blocks(a.n_in));
    for (uint32_t r0 = 0; r0 < a.n_rows; r0 += kRows) {
        const uint32_t n_rows = a.n_rows - r0 < kRows ? a.n_rows - r0 : kRows;
        const uint8_t* row[kRows];
        row_pointers<kRows>(a, r0, row);
        for (uint32_t t0 = 0; t0 < n_tiles; t0 += kPanelTiles) {
            const uint32_t n = n_tiles - t0 < kPanelTiles ? n_tiles - t0 : kPanelTiles;
            std::memset(work.acc, 0, n * sizeof work.acc[0]);
            for (uint32_t b = 0; b < n_wide; ++b) {
                const uint32_t n_groups = n_blocks - 8 * b < 8 ? n_blocks - 8 * b : 8;
                unpack_panel<Format>(
                    work.panel, row, 8 * b, n_groups,
                    bytes_ahead(a, kRows, b, n_wide, 8 * sizeof(typename Format::Block)));
                const ActTile* in = x + t0 * n_wide + b;
                uint32_t t = 0;
                for (; t + 2 <= n; t += 2) {
                    const ActTile* const two[] = {in + t * n_wide, in + (t + 1) * n_wide};
                    for (int r = 0; r < kRows; r += kR) {
                        VecF(*const acc[])[8] = {work.acc[t] + r, work.acc[t + 1] + r};
                        tile_q32<Format, kR, 2>(work.panel, r, two, n_groups, acc);
                    }
                }
                for (int r = 0; t < n && r < kRows; r += kR) {
                    const ActTile* const one[] = {in + t * n_wide};
                    VecF(*const acc[])[8] = {work.acc[t] + r};
                    tile_q32<Format, kR, 1>(work.panel, r, one, n_groups, acc);
                }
            }
            for (uint32_t t = 0; t < n; ++t) {
                VecF out[kRows];
                for (int r = 0; r < kRows; ++r) out[r] = tree_of_vectors(work.acc[t][r]);
                store_tile(out, a, t0 + t, r0, n_rows);
            }
        }
    }
}

}  // namespace

void fill_avx512(Kernels& table) {
    fill_avx512_operators(table);
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
