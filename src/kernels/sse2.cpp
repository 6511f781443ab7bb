// x86-64 as it always was: SSE2 and nothing newer, for CPUs without AVX2. Quantised matrices; the
// rest is sse2_operators.cpp. Weights become words, those of 256-blocks already times their scale
// (|scale * q| <= 4096), and pmaddwd multiplies eight of them with eight activations. Sums are
// int32 and exact in any order; the float steps follow generic.cpp. One driver serves small and
// large batches: they differ in rows per panel and in the order of the activations.
#include <emmintrin.h>

#include <cstring>

#include "kernels/blocks.h"
#include "kernels/half.h"
#include "kernels/levels.h"

namespace picolm {
namespace {

#include "kernels/sse2_common.inc"
#include "kernels/sse2_formats.inc"

// ---- rows and activations as words

constexpr uint32_t kGroupTokens = 4;    // tokens that are multiplied together; those of a tile
constexpr uint32_t kSmallRows = 8;      // rows of a panel in a small batch: as many streams
constexpr uint32_t kLargeRows = 32;     // in a large one
constexpr uint32_t kLargeTokens = 128;  // tokens that share one unpacking

// 256 weights of a row. 256-blocks: w times scale, one d and m. Small blocks: one d and m for each.
struct alignas(16) RowWords {
    int16_t w[kQK];
    int16_t mins[16];
    float d[8];
    float m[8];
};

// 256 activations of the tokens of a group, absent tokens as zeros.
struct alignas(16) ActWords {
    int16_t q[kGroupTokens][kActBlock];
};

template <class Format>
void unpack_q256(const typename Format::Block& b, RowWords& row) {
    int16_t scale[16];
    Format::scales(b, scale, row.mins);
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
        Vec words[4];
        Format::words(b, g, words);
        const Vec low = _mm_set1_epi16(scale[Format::kSub == 16 ? 2 * g : g]);
        const Vec high = Format::kSub == 16 ? _mm_set1_epi16(scale[2 * g + 1]) : low;
        for (int i = 0; i < 4; ++i)
            store(row.w + 32 * g + 8 * i, _mm_mullo_epi16(words[i], i < 2 ? low : high));
    }
    row.d[0] = f16_to_f32(b.d);
    if constexpr (Format::kHasMin) row.m[0] = f16_to_f32(b.dmin);
}

// n_groups <= 8 small blocks; the rest of the 256 weights is zero.
template <class Format>
void unpack_q32(const typename Format::Block* b, uint32_t n_groups, RowWords& row) {
    if (n_groups < 8) std::memset(&row, 0, sizeof row);
    uint16_t d[8] = {}, m[8] = {};
    for (uint32_t g = 0; g < n_groups; ++g) {
        Vec words[4];
        Format::words(b[g], words);
        for (uint32_t i = 0; i < 4; ++i) store(row.w + 32 * g + 8 * i, words[i]);
        d[g] = b[g].d;
        if constexpr (Format::kHasMin) m[g] = b[g].m;
    }
    halves_to_floats(d, row.d);
    if (Format::kHasMin) halves_to_floats(m, row.m);
}

void widen(const ActBlock& x, int16_t* q) {
    for (int i = 0; i < kActBlock; i += 16) {
        Vec words[2];
        widen_signed(load(x.q + i), words);
        store(q + i, words[0]);
        store(q + i + 8, words[1]);
    }
}

// While a block of some rows is worked on, as many bytes of the rows behind them arrive.
PICOLM_INLINE const uint8_t* prefetch(const uint8_t* p, size_t n) {
    for (size_t i = 0; i < n; i += 64)
        _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
    return p + n;
}

// Lane i is the sum over v[i].
PICOLM_INLINE Vec sum_lanes(const Vec v[4]) {
    const Vec a = _mm_add_epi32(_mm_unpacklo_epi32(v[0], v[1]), _mm_unpackhi_epi32(v[0], v[1]));
    const Vec b = _mm_add_epi32(_mm_unpacklo_epi32(v[2], v[3]), _mm_unpackhi_epi32(v[2], v[3]));
    return _mm_add_epi32(_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b));
}

// ---- 256-blocks: the tokens of a group are the lanes of the float steps

// sum[r][t] = lanes that add up to S of row r and token t.
template <int kR, int kT>
PICOLM_INLINE void dot(const RowWords* rows, const ActWords& x, Vec sum[kR][kGroupTokens]) {
    Vec acc[kR][kT];
    for (int r = 0; r < kR; ++r)
        for (int t = 0; t < kT; ++t) acc[r][t] = _mm_setzero_si128();
    for (int i = 0; i < kQK; i += 8) {
        Vec w[kR];
        for (int r = 0; r < kR; ++r) w[r] = load(rows[r].w + i);
        for (int t = 0; t < kT; ++t) {
            const Vec in = load(x.q[t] + i);
            for (int r = 0; r < kR; ++r)
                acc[r][t] = _mm_add_epi32(acc[r][t], _mm_madd_epi16(w[r], in));
        }
    }
    for (int r = 0; r < kR; ++r)
        for (uint32_t t = 0; t < kGroupTokens; ++t)
            sum[r][t] = t < kT ? acc[r][t < kT ? t : 0] : _mm_setzero_si128();
}

// Lanes that add up to M.
template <int kSub>
PICOLM_INLINE Vec min_dot(const int16_t* mins, const ActBlock& x) {
    if (kSub == 32) return _mm_madd_epi16(load(mins), load(x.sums32));
    return _mm_add_epi32(_mm_madd_epi16(load(mins), load(x.sums16)),
                         _mm_madd_epi16(load(mins + 8), load(x.sums16 + 8)));
}

// One block of n_rows rows (even; rows behind the last may be anything) and a group of tokens:
// acc[r] += d_x * (d * S - dmin * M).
template <class Format, int kT>
PICOLM_INLINE void group_q256(const RowWords* rows, uint32_t n_rows, const ActBlock* const x[],
                              ActWords& words, VecF* acc) {
    for (int t = 0; t < kT; ++t) widen(*x[t], words.q[t]);
    float d[kGroupTokens] = {};
    for (int t = 0; t < kT; ++t) d[t] = x[t]->d[0];
    const VecF d_x = _mm_loadu_ps(d);
    for (uint32_t r = 0; r < n_rows; r += 2) {
        Vec sum[2][kGroupTokens];
        dot<2, kT>(rows + r, words, sum);
        for (uint32_t k = 0; k < 2; ++k) {
            const RowWords& row = rows[r + k];
            VecF term = _mm_mul_ps(_mm_set1_ps(row.d[0]), _mm_cvtepi32_ps(sum_lanes(sum[k])));
            if (Format::kHasMin) {
                Vec min_sum[kGroupTokens];
                for (int t = 0; t < static_cast<int>(kGroupTokens); ++t)
                    min_sum[t] = t < kT ? min_dot<Format::kSub>(row.mins, *x[t < kT ? t : 0])
                                        : _mm_setzero_si128();
                term = _mm_sub_ps(
                    term, _mm_mul_ps(_mm_set1_ps(row.m[0]), _mm_cvtepi32_ps(sum_lanes(min_sum))));
            }
            acc[r + k] = _mm_add_ps(acc[r + k], _mm_mul_ps(d_x, term));
        }
    }
}

template <uint32_t kRows, uint32_t kTokens>
struct WorkQ256 {
    RowWords rows[kRows];
    ActWords words;
    VecF acc[kTokens / kGroupTokens][kRows];
};

template <uint32_t kTileTokens>
PICOLM_INLINE const ActBlock* act_block(const ActBlock* x, size_t n_blocks, uint32_t t,
                                        uint32_t b) {
    return x + (t / kTileTokens * n_blocks + b) * kTileTokens + t % kTileTokens;
}

// n_rows <= kRows rows from `row0` on against n_tok <= kTokens tokens from `token0` on.
template <class Format, uint32_t kTileTokens, uint32_t kRows, uint32_t kTokens>
void panel_q256(const MatArgs& a, const ActBlock* x, uint32_t row0, uint32_t token0,
                WorkQ256<kRows, kTokens>& work) {
    using Block = typename Format::Block;
    const uint32_t n_blocks = a.n_in / kQK;
    const uint32_t n_rows = a.n_rows - row0 < kRows ? a.n_rows - row0 : kRows;
    const uint32_t n_tok = a.n_tok - token0 < kTokens ? a.n_tok - token0 : kTokens;
    const uint32_t even = (n_rows + 1) / 2 * 2;
    const uint8_t* w = a.w + row0 * a.row_bytes;
    std::memset(work.acc, 0, (n_tok + kGroupTokens - 1) / kGroupTokens * sizeof work.acc[0]);
    std::memset(work.rows + even - 1, 0, sizeof work.rows[0]);
    const uint8_t* ahead = w + kRows * a.row_bytes;
    for (uint32_t b = 0; b < n_blocks; ++b) {
        ahead = prefetch(ahead, kRows * sizeof(Block));
        for (uint32_t r = 0; r < n_rows; ++r) {
            const auto* block = reinterpret_cast<const Block*>(w + r * a.row_bytes) + b;
            unpack_q256<Format>(*block, work.rows[r]);
        }
        for (uint32_t t = 0; t < n_tok; t += kGroupTokens) {
            const ActBlock* in[kGroupTokens];
            const uint32_t n = n_tok - t < kGroupTokens ? n_tok - t : kGroupTokens;
            for (uint32_t i = 0; i < n; ++i)
                in[i] = act_block<kTileTokens>(x, n_blocks, token0 + t + i, b);
            VecF* acc = work.acc[t / kGroupTokens];
            if (n == 1)
                group_q256<Format, 1>(work.rows, even, in, work.words, acc);
            else if (n == 2)
                group_q256<Format, 2>(work.rows, even, in, work.words, acc);
            else if (n == 3)
                group_q256<Format, 3>(work.rows, even, in, work.words, acc);
            else
                group_q256<Format, 4>(work.rows, even, in, work.words, acc);
        }
    }
    for (uint32_t r = 0; r < n_rows; ++r)
        for (uint32_t t = 0; t < n_tok; ++t) {
            float lane[kGroupTokens];
            _mm_storeu_ps(lane, work.acc[t / kGroupTokens][r]);
            a.y[(token0 + t) * a.y_stride + row0 + r] = lane[t % kGroupTokens];
        }
}

// Lanes that add up to S, straight from the block.
template <class Format>
PICOLM_INLINE Vec block_dot(const typename Format::Block& b, const int16_t* scale,
                            const int16_t* x) {
    Vec sum = _mm_setzero_si128();
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g, x += 32) {
        Vec words[4];
        Format::words(b, g, words);
        for (int i = 0; i < 4; ++i) {
            if (!Format::kShortSums) words[i] = _mm_mullo_epi16(words[i], _mm_set1_epi16(scale[g]));
            words[i] = _mm_madd_epi16(words[i], load(x + 8 * i));
        }
        const Vec low = _mm_add_epi32(words[0], words[1]);
        const Vec high = _mm_add_epi32(words[2], words[3]);
        // A short sum is the low word of its lane: another pmaddwd multiplies it.
        const auto times = [](Vec v, int16_t factor) {
            return _mm_madd_epi16(v, _mm_set1_epi32(static_cast<uint16_t>(factor)));
        };
        if (!Format::kShortSums)
            sum = _mm_add_epi32(sum, _mm_add_epi32(low, high));
        else if (Format::kSub == 32)
            sum = _mm_add_epi32(sum, times(_mm_add_epi32(low, high), scale[g]));
        else
            sum = _mm_add_epi32(
                sum, _mm_add_epi32(times(low, scale[2 * g]), times(high, scale[2 * g + 1])));
    }
    return sum;
}

// One block of four rows and one token.
template <class Format>
PICOLM_INLINE VecF step_q256(const typename Format::Block* const b[4], const ActBlock& x,
                             const int16_t* q, VecF acc) {
    Vec sums[4], min_sums[4];
    float d[4], m[4];
    for (int r = 0; r < 4; ++r) {
        int16_t scale[16], mins[16];
        Format::scales(*b[r], scale, mins);
        sums[r] = block_dot<Format>(*b[r], scale, q);
        d[r] = f16_to_f32(b[r]->d);
        if constexpr (Format::kHasMin) {
            min_sums[r] = min_dot<Format::kSub>(mins, x);
            m[r] = f16_to_f32(b[r]->dmin);
        }
    }
    VecF term = _mm_mul_ps(_mm_loadu_ps(d), _mm_cvtepi32_ps(sum_lanes(sums)));
    if constexpr (Format::kHasMin)
        term = _mm_sub_ps(term, _mm_mul_ps(_mm_loadu_ps(m), _mm_cvtepi32_ps(sum_lanes(min_sums))));
    return _mm_add_ps(acc, _mm_mul_ps(_mm_set1_ps(x.d[0]), term));
}

// One token has nothing to share an unpacking with. Rows behind the last repeat it.
template <class Format>
void single_q256(const MatArgs& a, const ActBlock* x, float* out) {
    using Block = typename Format::Block;
    for (uint32_t r0 = 0; r0 < a.n_rows; r0 += kSmallRows) {
        const uint32_t n_rows = a.n_rows - r0 < kSmallRows ? a.n_rows - r0 : kSmallRows;
        const Block* rows[kSmallRows];
        for (uint32_t r = 0; r < kSmallRows; ++r)
            rows[r] = reinterpret_cast<const Block*>(a.w + (r0 + (r < n_rows ? r : n_rows - 1)) *
                                                               a.row_bytes);
        const uint8_t* ahead = a.w + (r0 + kSmallRows) * a.row_bytes;
        VecF acc[2] = {_mm_setzero_ps(), _mm_setzero_ps()};
        for (uint32_t b = 0; b < a.n_in / kQK; ++b) {
            alignas(16) int16_t q[kActBlock];
            widen(x[b], q);
            acc[0] = step_q256<Format>(rows, x[b], q, acc[0]);
            acc[1] = step_q256<Format>(rows + 4, x[b], q, acc[1]);
            for (const Block*& row : rows) ++row;
            ahead = prefetch(ahead, kSmallRows * sizeof(Block));
        }
        float y[kSmallRows];
        _mm_storeu_ps(y, acc[0]);
        _mm_storeu_ps(y + 4, acc[1]);
        std::memcpy(out + r0, y, n_rows * sizeof(float));
    }
}

template <class Format>
void small_q256(const MatArgs& a, const ActBlock* x) {
    if (a.n_tok <= 2) {  // two on their own are faster than a panel for two
        for (uint32_t t = 0; t < a.n_tok; ++t)
            single_q256<Format>(a, x + t * (a.n_in / kQK), a.y + t * a.y_stride);
        return;
    }
    WorkQ256<kSmallRows, kMaxSmallBatch> work;
    for (uint32_t r = 0; r < a.n_rows; r += kSmallRows)
        panel_q256<Format, 1, kSmallRows, kMaxSmallBatch>(a, x, r, 0, work);
}

template <class Format>
void large_q256(const MatArgs& a, const uint8_t* tiles, uint8_t* scratch) {
    using Work = WorkQ256<kLargeRows, kLargeTokens>;
    static_assert(sizeof(Work) <= kPanelBytes);
    auto& work = *reinterpret_cast<Work*>(scratch);
    const auto* x = reinterpret_cast<const ActBlock*>(tiles);
    for (uint32_t r = 0; r < a.n_rows; r += kLargeRows)
        for (uint32_t t = 0; t < a.n_tok; t += kLargeTokens)
            panel_q256<Format, kGroupTokens, kLargeRows, kLargeTokens>(a, x, r, t, work);
}

// ---- 32-element blocks: eight blocks of one row are the lanes of the float steps

struct Lanes8 {
    VecF low;   // accumulators 0..3
    VecF high;  // 4..7
};

// Lanes that add up to the sums of blocks g to g + 3, then these sums.
PICOLM_INLINE VecF four_sums(const int16_t* w, const int16_t* x) {
    Vec sums[4];
    for (int g = 0; g < 4; ++g) {
        Vec products[4];
        for (int i = 0; i < 4; ++i)
            products[i] = _mm_madd_epi16(load(w + 32 * g + 8 * i), load(x + 32 * g + 8 * i));
        sums[g] = _mm_add_epi32(_mm_add_epi32(products[0], products[1]),
                                _mm_add_epi32(products[2], products[3]));
    }
    return _mm_cvtepi32_ps(sum_lanes(sums));
}

template <bool kHasMin>
PICOLM_INLINE VecF step_q32(VecF acc, const float* d, VecF sum, const float* m, Vec act_sums,
                            const float* d_x) {
    VecF term = _mm_mul_ps(_mm_loadu_ps(d), sum);
    if (kHasMin) term = _mm_add_ps(term, _mm_mul_ps(_mm_loadu_ps(m), _mm_cvtepi32_ps(act_sums)));
    return _mm_add_ps(acc, _mm_mul_ps(_mm_loadu_ps(d_x), term));
}

// Eight blocks of n_rows rows and one token.
template <class Format>
PICOLM_INLINE void token_q32(const RowWords* rows, uint32_t n_rows, const ActBlock& x,
                             const int16_t* q, Lanes8* acc) {
    const Vec sums = load(x.sums32);
    const Vec low = _mm_srai_epi32(_mm_unpacklo_epi16(sums, sums), 16);
    const Vec high = _mm_srai_epi32(_mm_unpackhi_epi16(sums, sums), 16);
    for (uint32_t r = 0; r < n_rows; ++r) {
        const RowWords& row = rows[r];
        acc[r].low =
            step_q32<Format::kHasMin>(acc[r].low, row.d, four_sums(row.w, q), row.m, low, x.d);
        acc[r].high = step_q32<Format::kHasMin>(
            acc[r].high, row.d + 4, four_sums(row.w + 128, q + 128), row.m + 4, high, x.d + 4);
    }
}

template <uint32_t kRows, uint32_t kTokens>
struct WorkQ32 {
    RowWords rows[kRows];
    ActWords words;
    Lanes8 acc[kTokens][kRows];
};

template <class Format, uint32_t kTileTokens, uint32_t kRows, uint32_t kTokens>
void panel_q32(const MatArgs& a, const ActBlock* x, uint32_t row0, uint32_t token0,
               WorkQ32<kRows, kTokens>& work) {
    using Block = typename Format::Block;
    const uint32_t n_blocks = a.n_in / kQK32, n_wide = static_cast<uint32_t>(act_blocks(a.n_in));
    const uint32_t n_rows = a.n_rows - row0 < kRows ? a.n_rows - row0 : kRows;
    const uint32_t n_tok = a.n_tok - token0 < kTokens ? a.n_tok - token0 : kTokens;
    const uint8_t* w = a.w + row0 * a.row_bytes;
    std::memset(work.acc, 0, n_tok * sizeof work.acc[0]);
    const uint8_t* ahead = w + kRows * a.row_bytes;
    for (uint32_t b = 0; b < n_wide; ++b) {
        ahead = prefetch(ahead, kRows * 8 * sizeof(Block));
        const uint32_t n_groups = n_blocks - 8 * b < 8 ? n_blocks - 8 * b : 8;
        for (uint32_t r = 0; r < n_rows; ++r) {
            const auto* block = reinterpret_cast<const Block*>(w + r * a.row_bytes) + 8 * b;
            unpack_q32<Format>(block, n_groups, work.rows[r]);
        }
        for (uint32_t t = 0; t < n_tok; ++t) {
            const ActBlock* in = act_block<kTileTokens>(x, n_wide, token0 + t, b);
            widen(*in, work.words.q[0]);
            token_q32<Format>(work.rows, n_rows, *in, work.words.q[0], work.acc[t]);
        }
    }
    for (uint32_t t = 0; t < n_tok; ++t)
        for (uint32_t r = 0; r < n_rows; ++r) {
            const Lanes8& acc = work.acc[t][r];
            a.y[(token0 + t) * a.y_stride + row0 + r] = tree_sum(_mm_add_ps(acc.low, acc.high));
        }
}

template <class Format>
void small_q32(const MatArgs& a, const ActBlock* x) {
    WorkQ32<kSmallRows, kMaxSmallBatch> work;
    for (uint32_t r = 0; r < a.n_rows; r += kSmallRows)
        panel_q32<Format, 1, kSmallRows, kMaxSmallBatch>(a, x, r, 0, work);
}

template <class Format>
void large_q32(const MatArgs& a, const uint8_t* tiles, uint8_t* scratch) {
    constexpr uint32_t kTokens = kLargeTokens / 4;  // eight accumulators each
    using Work = WorkQ32<kLargeRows, kTokens>;
    static_assert(sizeof(Work) <= kPanelBytes);
    auto& work = *reinterpret_cast<Work*>(scratch);
    const auto* x = reinterpret_cast<const ActBlock*>(tiles);
    for (uint32_t r = 0; r < a.n_rows; r += kLargeRows)
        for (uint32_t t = 0; t < a.n_tok; t += kTokens)
            panel_q32<Format, kGroupTokens, kLargeRows, kTokens>(a, x, r, t, work);
}

// A tile is the same block of kGroupTokens tokens.
void pack(const ActBlock* x, size_t stride, uint32_t n_blocks, uint32_t n_tok, uint8_t* tiles) {
    for (uint32_t b = 0; b < n_blocks; ++b)
        for (uint32_t t = 0; t < kGroupTokens; ++t, tiles += sizeof(ActBlock)) {
            if (t < n_tok)
                std::memcpy(tiles, x + t * stride + b, sizeof(ActBlock));
            else
                std::memset(tiles, 0, sizeof(ActBlock));
        }
}

}  // namespace

void fill_sse2(Kernels& table) {
    fill_sse2_operators(table);
    const auto matrix = [&](TensorType type, MatSmall small, MatLarge large) {
        table.mat_small[static_cast<size_t>(type)] = small;
        table.large.mat[static_cast<size_t>(type)] = large;
    };
    table.large.tile_tokens = kGroupTokens;
    table.large.tile_bytes = kGroupTokens * sizeof(ActBlock);
    table.large.from_tokens = kMaxSmallBatch + 1;
    table.large.pack = pack;
    matrix(TensorType::q2_k, small_q256<Q2K>, large_q256<Q2K>);
    matrix(TensorType::q3_k, small_q256<Q3K>, large_q256<Q3K>);
    matrix(TensorType::q4_k, small_q256<Q4K>, large_q256<Q4K>);
    matrix(TensorType::q5_k, small_q256<Q5K>, large_q256<Q5K>);
    matrix(TensorType::q6_k, small_q256<Q6K>, large_q256<Q6K>);
    matrix(TensorType::iq4_xs, small_q256<IQ4XS>, large_q256<IQ4XS>);
    matrix(TensorType::q4_0, small_q32<Q4_0>, large_q32<Q4_0>);
    matrix(TensorType::q4_1, small_q32<Q4_1>, large_q32<Q4_1>);
    matrix(TensorType::q5_0, small_q32<Q5_0>, large_q32<Q5_0>);
    matrix(TensorType::q5_1, small_q32<Q5_1>, large_q32<Q5_1>);
    matrix(TensorType::q8_0, small_q32<Q8_0>, large_q32<Q8_0>);
    matrix(TensorType::iq4_nl, small_q32<IQ4NL>, large_q32<IQ4NL>);
}

}  // namespace picolm
