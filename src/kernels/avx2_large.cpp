// AVX2, large batches of quantised weights: a panel of rows is unpacked to bytes and multiplied
// with all tokens. Tokens are the lanes: a tile holds a 256-block of 8 tokens, four activations of
// each side by side, so that a broadcast of four weights meets 8 tokens.
#include <immintrin.h>

#include <cstddef>
#include <cstring>

#include "kernels/blocks.h"
#include "kernels/levels.h"

namespace picolm {
namespace {

#include "kernels/avx2_common.inc"
#include "kernels/avx2_formats.inc"

constexpr uint32_t kTileTokens = 8;
constexpr uint32_t kPanelTiles = 16;  // tiles that share one unpacking: 128 tokens

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

// One 256-block of kRows rows, in the terms of avx2_formats.inc.
template <uint32_t kRows>
struct Panel {
    uint8_t q[kRows][kQK];
    int32_t scale[kRows][16];  // each scale twice, as the words of a dword
    int16_t scale_pairs[kRows][16];
    int16_t min_pairs[kRows][16];
    float d[kRows][8];  // one per 32-block; 256-blocks use the first
    float m[kRows][8];
};

PICOLM_INLINE Vec broadcast4(const void* p) {
    int32_t bits;
    std::memcpy(&bits, p, sizeof bits);
    return _mm256_set1_epi32(bits);
}
PICOLM_INLINE void store(void* p, Vec v) {
    _mm256_storeu_si256(static_cast<Vec*>(p), v);
}

// Products of kChain groups of four weights of kR rows with kT tiles, summed up in words. q: rows
// kQK apart.
template <int kChain, bool kSigned, int kR, int kT>
PICOLM_INLINE void multiply_chain(const uint8_t* q, const int8_t* const x[kT], Vec acc[kR][kT]) {
#pragma GCC unroll 8
    for (int g = 0; g < kChain; ++g) {
        Vec in[kT];
        for (int t = 0; t < kT; ++t) in[t] = load(x[t] + 32 * g);
#pragma GCC unroll 4
        for (int r = 0; r < kR; ++r) {
            const Vec w = broadcast4(q + r * kQK + 4 * g);
#pragma GCC unroll 2
            for (int t = 0; t < kT; ++t) {
                const Vec product = multiply<kSigned>(w, in[t]);
                acc[r][t] = g == 0 ? product : _mm256_add_epi16(acc[r][t], product);
                add_now(acc[r][t]);
            }
        }
    }
}

template <int kPairs>
PICOLM_INLINE Vec pair_sums(const int16_t (*sums)[kTileTokens][2], const int16_t* factors) {
    Vec sum = _mm256_madd_epi16(load(sums[0]), broadcast4(factors));
    for (int g = 1; g < kPairs; ++g)
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(load(sums[g]), broadcast4(factors + 2 * g)));
    return sum;
}

// One block of kR rows against kT tiles: acc[t][r] += da * (d * S - dmin * M).
template <class Format, int kR, int kT, uint32_t kRows>
PICOLM_INLINE void tile_q256(const Panel<kRows>& panel, uint32_t row, const ActTile* const x[kT],
                             VecF* const acc[kT]) {
    constexpr int kChains = Format::kSub / 4 / Format::kChain;
    Vec sum[kR][kT];
    for (uint32_t r = 0; r < kR; ++r)
        for (int t = 0; t < kT; ++t) {
            sum[r][t] = _mm256_setzero_si256();
            if constexpr (Format::kOffsetBits > 0)
                sum[r][t] = _mm256_sub_epi32(
                    sum[r][t],
                    _mm256_slli_epi32(pair_sums<8>(x[t]->sums16, panel.scale_pairs[row + r]),
                                      Format::kOffsetBits));
        }
    const uint8_t* q = panel.q[row];
    const int32_t* scale = panel.scale[row];
    const int8_t* in[kT];
    for (int t = 0; t < kT; ++t) in[t] = x[t]->q[0][0];
#pragma GCC unroll 1
    for (int s = 0; s < kQK / Format::kSub; ++s) {
#pragma GCC unroll 8
        for (int c = 0; c < kChains; ++c) {
            Vec product[kR][kT];
            multiply_chain<Format::kChain, Format::kSigned, kR, kT>(q, in, product);
            for (int r = 0; r < kR; ++r) {
                const Vec factor = broadcast4(scale + 16 * r);
                for (int t = 0; t < kT; ++t) {
                    sum[r][t] =
                        _mm256_add_epi32(sum[r][t], _mm256_madd_epi16(product[r][t], factor));
                    add_now(sum[r][t]);
                }
            }
            q += 4 * Format::kChain;
            for (int t = 0; t < kT; ++t) in[t] += 32 * Format::kChain;
        }
        ++scale;
    }
    for (uint32_t r = 0; r < kR; ++r)
        for (int t = 0; t < kT; ++t) {
            VecF term = _mm256_mul_ps(_mm256_set1_ps(panel.d[row + r][0]), to_float(sum[r][t]));
            if (Format::kHasMin) {
                const int16_t* pairs = panel.min_pairs[row + r];
                const Vec mins = Format::kSub == 16 ? pair_sums<8>(x[t]->sums16, pairs)
                                                    : pair_sums<4>(x[t]->sums32, pairs);
                term = _mm256_sub_ps(
                    term, _mm256_mul_ps(_mm256_set1_ps(panel.m[row + r][0]), to_float(mins)));
            }
            acc[t][r] = _mm256_add_ps(acc[t][r], _mm256_mul_ps(_mm256_load_ps(x[t]->d[0]), term));
        }
}

PICOLM_INLINE float to_float(uint16_t half) {
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(half)));
}

template <class Format, uint32_t kRows>
PICOLM_INLINE void unpack_q256(Panel<kRows>& panel, uint32_t r, const typename Format::Block& b) {
    Vec q[8];
    Format::unpack(b, q);
    for (int j = 0; j < 8; ++j) store(panel.q[r] + 32 * j, q[j]);
    const Scales scales = Format::scales(b);
    if constexpr (Format::kSub == 16) {
        const Vec words = _mm256_cvtepi8_epi16(Format::scale_bytes(b));
        store(panel.scale_pairs[r], words);
        // The halves of `words` are [0..7] and [8..15]; each lane of unpack makes four.
        const Vec low = _mm256_unpacklo_epi16(words, words);
        const Vec high = _mm256_unpackhi_epi16(words, words);
        store(panel.scale[r], _mm256_permute2x128_si256(low, high, 0x20));
        store(panel.scale[r] + 8, _mm256_permute2x128_si256(low, high, 0x31));
        if (Format::kHasMin) store(panel.min_pairs[r], _mm256_cvtepu8_epi16(scales.mins));
    } else {
        const __m128i words = _mm256_castsi256_si128(scales.words);
        store(panel.scale[r],
              _mm256_set_m128i(_mm_unpackhi_epi16(words, words), _mm_unpacklo_epi16(words, words)));
        if (Format::kHasMin)
            store(panel.min_pairs[r], _mm256_cvtepu8_epi16(_mm_srli_si128(scales.mins, 8)));
    }
    panel.d[r][0] = to_float(b.d);
    if constexpr (Format::kHasMin) panel.m[r][0] = to_float(b.dmin);
}

// Eight tokens' sums of one row leave the lanes.
PICOLM_INLINE void store_column(VecF v, const MatArgs& a, uint32_t tile, uint32_t row) {
    float out[8];
    _mm256_storeu_ps(out, v);
    const uint32_t first = tile * kTileTokens;
    for (uint32_t t = 0; t < kTileTokens && first + t < a.n_tok; ++t)
        a.y[(first + t) * a.y_stride + row] = out[t];
}

// Block b of n_rows rows; the rows behind them are fetched meanwhile, in the order of memory.
template <class Format, uint32_t kRows>
void unpack_panel(Panel<kRows>& panel, const uint8_t* w, size_t row_bytes, uint32_t n_rows,
                  uint32_t b) {
    using Block = typename Format::Block;
    const uint8_t* ahead = w + n_rows * (row_bytes + b * sizeof(Block));
    w += b * sizeof(Block);
    for (uint32_t r = 0; r < n_rows; ++r, w += row_bytes, ahead += sizeof(Block)) {
        prefetch(ahead, sizeof(Block));
        unpack_q256<Format, kRows>(panel, r, *reinterpret_cast<const Block*>(w));
    }
}

// kR rows against n tiles.
template <class Format, int kR, uint32_t kRows>
void row_group_q256(const Panel<kRows>& panel, uint32_t row, const ActTile* x, size_t stride,
                    uint32_t n, VecF (*acc)[kRows]) {
    uint32_t t = 0;
    for (; t + 2 <= n; t += 2) {
        const ActTile* const two[] = {x + t * stride, x + (t + 1) * stride};
        VecF* const to[] = {acc[t] + row, acc[t + 1] + row};
        tile_q256<Format, kR, 2, kRows>(panel, row, two, to);
    }
    for (; t < n; ++t) {
        const ActTile* const one[] = {x + t * stride};
        VecF* const to[] = {acc[t] + row};
        tile_q256<Format, kR, 1, kRows>(panel, row, one, to);
    }
}

template <class Format>
void large_q256(const MatArgs& a, const uint8_t* tiles, uint8_t* scratch) {
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
        for (uint32_t t0 = 0; t0 < n_tiles; t0 += kPanelTiles) {
            const uint32_t n = n_tiles - t0 < kPanelTiles ? n_tiles - t0 : kPanelTiles;
            std::memset(work.acc, 0, n * sizeof work.acc[0]);
            for (uint32_t b = 0; b < n_blocks; ++b) {
                unpack_panel<Format, kRows>(work.panel, a.w + r0 * a.row_bytes, a.row_bytes, n_rows,
                                            b);
                const ActTile* in = x + t0 * n_blocks + b;
                uint32_t r = 0;
                for (; r + kR <= n_rows; r += kR)
                    row_group_q256<Format, kR, kRows>(work.panel, r, in, n_blocks, n, work.acc);
                for (; r < n_rows; ++r)
                    row_group_q256<Format, 1, kRows>(work.panel, r, in, n_blocks, n, work.acc);
            }
            for (uint32_t t = 0; t < n; ++t)
                for (uint32_t r = 0; r < n_rows; ++r)
                    store_column(work.acc[t][r], a, t0 + t, r0 + r);
        }
    }
}

// Minus what the offset of the weights adds to a sum of products.
template <class Format>
PICOLM_INLINE Vec start_of(Vec act_sums) {
    if constexpr (Format::kOffsetBits < 0) return _mm256_setzero_si256();
    return _mm256_sub_epi32(_mm256_setzero_si256(),
                            _mm256_slli_epi32(act_sums, Format::kOffsetBits & 31));
}

template <class Format, uint32_t kRows>
void unpack_q32(Panel<kRows>& panel, uint32_t r, const typename Format::Block& b, uint32_t g) {
    _mm256_store_si256(reinterpret_cast<Vec*>(panel.q[r] + 32 * g), Format::unpack(b));
    panel.d[r][g] = to_float(b.d);
    if constexpr (Format::kHasMin) panel.m[r][g] = to_float(b.m);
}

// n_groups 32-blocks of kR rows against one tile; acc: [row][8 accumulators].
template <class Format, int kR, uint32_t kRows>
PICOLM_INLINE void tile_q32(const Panel<kRows>& panel, uint32_t row, const ActTile& x,
                            uint32_t n_groups, VecF (*acc)[8]) {
    for (uint32_t g = 0; g < n_groups; ++g) {
        Vec sum[kR];
        const Vec act_sum = _mm256_madd_epi16(load(x.sums16[g]), _mm256_set1_epi16(1));
        for (Vec& each : sum) each = start_of<Format>(act_sum);
        const uint8_t* q = panel.q[row] + 32 * g;
        const int8_t* in[] = {x.q[8 * g][0]};
#pragma GCC unroll 8
        for (int c = 0; c < 8 / Format::kChain; ++c) {
            Vec product[kR][1];
            multiply_chain<Format::kChain, Format::kSigned, kR, 1>(q, in, product);
            for (int r = 0; r < kR; ++r) {
                sum[r] = _mm256_add_epi32(sum[r],
                                          _mm256_madd_epi16(product[r][0], _mm256_set1_epi16(1)));
                add_now(sum[r]);
            }
            q += 4 * Format::kChain;
            in[0] += 32 * Format::kChain;
        }
        const VecF da = _mm256_load_ps(x.d[g]);
        for (uint32_t r = 0; r < kR; ++r) {
            VecF term = _mm256_mul_ps(_mm256_set1_ps(panel.d[row + r][g]), to_float(sum[r]));
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
            const uint8_t* ahead = a.w + (r0 + n_rows) * a.row_bytes;
            for (uint32_t b = 0; b < n_wide; ++b) {
                const uint32_t n_groups = n_blocks - 8 * b < 8 ? n_blocks - 8 * b : 8;
                for (uint32_t r = 0; r < padded; ++r) {
                    const uint32_t real = r < n_rows ? r : n_rows - 1;
                    const uint8_t* row = a.w + (r0 + real) * a.row_bytes;
                    const auto* block = reinterpret_cast<const Block*>(row) + 8 * b;
                    prefetch(ahead, 8 * sizeof(Block));
                    ahead += 8 * sizeof(Block);
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

void fill_avx2_large(LargeBatch& large) {
    large.tile_tokens = kTileTokens;
    large.tile_bytes = sizeof(ActTile);
    large.from_tokens = 5;
    large.pack = pack;
    const auto mat = [&](TensorType type) -> MatLarge& {
        return large.mat[static_cast<size_t>(type)];
    };
    mat(TensorType::q2_k) = large_q256<Q2K>;
    mat(TensorType::q3_k) = large_q256<Q3K>;
    mat(TensorType::q4_k) = large_q256<Q4K>;
    mat(TensorType::q5_k) = large_q256<Q5K>;
    mat(TensorType::q6_k) = large_q256<Q6K>;
    mat(TensorType::iq4_xs) = large_q256<IQ4XS>;
    mat(TensorType::q4_0) = large_q32<Q4_0>;
    mat(TensorType::q4_1) = large_q32<Q4_1>;
    mat(TensorType::q5_0) = large_q32<Q5_0>;
    mat(TensorType::q5_1) = large_q32<Q5_1>;
    mat(TensorType::q8_0) = large_q32<Q8_0>;
    mat(TensorType::iq4_nl) = large_q32<IQ4NL>;
}

}  // namespace picolm
