// AMX: large batches as products of 16 rows by 16 tokens in the tiles of avx512_tile.inc; small
// ones are inherited from avx512. A scaled weight q * scale of a 256-block is cut into two planes
// of bytes, 128 * high + low, so that one sum per plane and block is exact; 32-element blocks have
// a product of their own each. A call configures the tiles of its thread and releases them at its
// end: a thread that waits has no tile state to save, and nobody else needs to know of it.
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

// The compiler may neither delay stores past a tile load that reads them nor drop them: the
// intrinsics do not say what they read.
PICOLM_INLINE void barrier() {
    __asm__ volatile("" ::: "memory");
}

// Tiles 0 to 3 hold sums, 4 and 5 weights, 6 and 7 activations.
struct TileConfig {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

// depth: weights per row and product, a multiple of 4 up to 64.
void configure_tiles(int depth) {
    alignas(64) TileConfig c{};
    c.palette = 1;
    for (int t = 0; t < 8; ++t) {
        c.row_bytes[t] = static_cast<uint16_t>(t == 4 || t == 5 ? depth : 64);
        c.rows[t] = static_cast<uint8_t>(t >= 6 ? depth / 4 : 16);
    }
    // gcc 12 takes it that eight bytes are read: show it the address, that all are stored.
    __asm__ volatile("" ::"r"(&c) : "memory");
    _tile_loadconfig(&c);
}

using Sums = int32_t[16][16];  // [row][token]

// ---- 256-blocks

// The two planes of level * scale for the 16 levels of a format of nibbles, by scale - kLowest.
template <int kLowest>
struct PlaneTable {
    alignas(64) int8_t at[64][2][16];
    constexpr explicit PlaneTable(const int8_t (&levels)[16]) : at{} {
        for (int s = 0; s < 64; ++s)
            for (int q = 0; q < 16; ++q) {
                const int product = levels[q] * (s + kLowest);
                at[s][0][q] = static_cast<int8_t>(product & 127);
                at[s][1][q] = static_cast<int8_t>(product >> 7);
            }
    }
};
constexpr int8_t kPlainLevels[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
constexpr PlaneTable<0> kQ4Planes(kPlainLevels);
constexpr PlaneTable<-32> kIq4Planes(kIq4Levels);

// 64 nibbles, the scales of each half of them.
template <int kLowest>
PICOLM_INLINE void planes_by_table(const PlaneTable<kLowest>& table, Vec nibbles, int scale_a,
                                   int scale_b, Vec plane[2]) {
    for (int p = 0; p < 2; ++p) {
        const Vec entries =
            _mm512_mask_broadcast_i32x4(repeat128(table.at[scale_a - kLowest][p]), 0xff00,
                                        load128(table.at[scale_b - kLowest][p]));
        plane[p] = _mm512_shuffle_epi8(entries, nibbles);
    }
}
// 64 signed bytes, a word of scale for each two.
PICOLM_INLINE void planes_by_product(Vec q, Vec factor, Vec plane[2]) {
    const Vec even = _mm512_mullo_epi16(_mm512_srai_epi16(_mm512_slli_epi16(q, 8), 8), factor);
    const Vec odd = _mm512_mullo_epi16(_mm512_srai_epi16(q, 8), factor);
    const Vec lower = _mm512_set1_epi16(0xff);
    const auto join = [&](Vec a, Vec b) { return _mm512_ternarylogic_epi32(lower, a, b, 0xca); };
    plane[0] = and_bytes(join(even, _mm512_slli_epi16(odd, 8)), 127);
    plane[1] = join(_mm512_srli_epi16(even, 7), _mm512_slli_epi16(odd, 1));
}

// How the formats come to their planes. Q2_K: products below 128 need only one.
template <class Format>
struct Planes {
    static constexpr int kCount = 2;
    PICOLM_INLINE static void fill(const typename Format::Block& b, const int16_t (*scale)[4][8],
                                   int row, Vec plane[4][2]) {
        Vec q[4], factor[4];
        Format::unpack(b, q);
        spread_scales<Format>(scale, row, factor);
        for (int k = 0; k < 4; ++k)
            planes_by_product(_mm512_sub_epi8(q[k], _mm512_set1_epi8(Format::kOffset)), factor[k],
                              plane[k]);
    }
};
template <>
struct Planes<Q4K> {
    static constexpr int kCount = 2;
    PICOLM_INLINE static void fill(const BlockQ4_K& b, const int16_t (*scale)[4][8], int row,
                                   Vec plane[4][2]) {
        Vec q[4];
        Q4K::unpack(b, q);
        const int16_t* s = scale[0][row];
        for (int k = 0; k < 4; ++k)
            planes_by_table(kQ4Planes, q[k], s[2 * k], s[2 * k + 1], plane[k]);
    }
};
template <>
struct Planes<IQ4XS> {
    static constexpr int kCount = 2;
    PICOLM_INLINE static void fill(const BlockIQ4_XS& b, const int16_t (*scale)[4][8], int row,
                                   Vec plane[4][2]) {
        const int16_t* s = scale[0][row];
        for (int k = 0; k < 4; ++k)
            planes_by_table(kIq4Planes, nibbles_of_two(b.qs + 32 * k, b.qs + 32 * k + 16), s[2 * k],
                            s[2 * k + 1], plane[k]);
    }
};
template <>
struct Planes<Q2K> {
    static constexpr int kCount = 1;
    PICOLM_INLINE static void fill(const BlockQ2_K& b, const int16_t (*scale)[4][8], int row,
                                   Vec plane[4][2]) {
        Vec q[4], factor[4];
        Q2K::unpack(b, q);
        spread_scales<Q2K>(scale, row, factor);
        // Both bytes of a word at once: a product of 0..3 by 0..15 stays below 256.
        for (int k = 0; k < 4; ++k) plane[k][0] = _mm512_mullo_epi16(q[k], factor[k]);
    }
};

// One 256-block of 16 rows.
struct alignas(64) PanelQ256 {
    int8_t plane[2][16][kQK];
    int16_t min[2][16][8];  // [sub-block / 8][row]
    float d[16];
    float dmin[16];
};

// Four of the 16 rows. Not a part of its callers, whose registers are the tiles' addresses.
template <class Format>
[[gnu::noinline]] void unpack_four(PanelQ256& p, const uint8_t* const row[16], int r0, uint32_t b,
                                   size_t ahead) {
    using Block = typename Format::Block;
    const Block* block[4];
    for (int r = 0; r < 4; ++r) {
        block[r] = reinterpret_cast<const Block*>(row[r0 + r]) + b;
        prefetch(reinterpret_cast<const uint8_t*>(block[r]) + ahead, sizeof(Block) + 63);
    }
    FourScales s;
    Format::scales(block, s);
    alignas(64) int16_t scale[2][4][8];
    for (int h = 0; h < (Format::kSub == 16 ? 2 : 1); ++h) {
        store(scale[h], s.scale[h]);
        if (Format::kHasMin) store(p.min[h][r0], s.min[h]);
    }
    _mm_store_ps(p.d + r0, s.d);
    if (Format::kHasMin) _mm_store_ps(p.dmin + r0, s.dmin);
    for (int r = 0; r < 4; ++r) {
        Vec plane[4][2];
        Planes<Format>::fill(*block[r], scale, r, plane);
        for (int k = 0; k < 4; ++k)
            for (int i = 0; i < Planes<Format>::kCount; ++i)
                store(p.plane[i][r0 + r] + 64 * k, plane[k][i]);
    }
}

// Where the sums of a product go: one block of 16 rows, one or two tiles of tokens.
struct StepQ256 {
    const PanelQ256* panel;
    const ActTile* x[2];  // the second may be missing
    VecF* acc[2];         // [16 rows]
};

// M of four rows against kT tiles.
template <class Format, int kT>
PICOLM_INLINE void min_sums(const StepQ256& step, int r, const Vec (*sums)[8], Vec mins[kT]) {
#pragma GCC unroll 8
    for (int g = 0; g < (Format::kSub == 16 ? 8 : 4); ++g) {
        const Vec pair = repeat32(step.panel->min[g / 4][r] + g % 4 * 2);
#pragma GCC unroll 2
        for (int t = 0; t < kT; ++t)
            mins[t] = g == 0 ? _mm512_madd_epi16(sums[t][g], pair)
                             : _mm512_dpwssd_epi32(mins[t], sums[t][g], pair);
    }
}

// acc += da * (d * S - dmin * M) for four rows, of S = sums[t][0] + 128 * sums[t][1].
template <class Format, int kT>
[[gnu::noinline]] void finish_rows(const StepQ256& step, const Sums (*sums)[2], int r0) {
    const PanelQ256& p = *step.panel;
    VecF da[kT];
    Vec act_sums[kT][8];
    for (int t = 0; t < kT; ++t) {
        da[t] = _mm512_load_ps(step.x[t]->d[0]);
        for (int g = 0; Format::kHasMin && g < (Format::kSub == 16 ? 8 : 4); ++g)
            act_sums[t][g] =
                load(Format::kSub == 16 ? step.x[t]->sums16[g] : step.x[t]->sums32[g % 4]);
    }
#pragma GCC unroll 4
    for (int r = r0; r < r0 + 4; ++r) {
        Vec mins[kT];
        if (Format::kHasMin) min_sums<Format, kT>(step, r, act_sums, mins);
#pragma GCC unroll 2
        for (int t = 0; t < kT; ++t) {
            const Vec low = load(sums[t][0][r]), high = load(sums[t][1][r]);
            const Vec sum = _mm512_add_epi32(
                low, Planes<Format>::kCount == 2 ? _mm512_slli_epi32(high, 7) : high);
            VecF term = _mm512_mul_ps(_mm512_set1_ps(p.d[r]), _mm512_cvtepi32_ps(sum));
            if (Format::kHasMin)
                term = _mm512_sub_ps(
                    term, _mm512_mul_ps(_mm512_set1_ps(p.dmin[r]), _mm512_cvtepi32_ps(mins[t])));
            step.acc[t][r] = _mm512_add_ps(step.acc[t][r], _mm512_mul_ps(da[t], term));
        }
    }
}
template <class Format>
PICOLM_INLINE void finish_rows(const StepQ256& step, const Sums (*sums)[2], int r0) {
    if (step.x[1])
        finish_rows<Format, 2>(step, sums, r0);
    else if (step.x[0])
        finish_rows<Format, 1>(step, sums, r0);
}

// 64 weights of the panel, from 64 * k on. With one plane the sums of even and odd k have tiles of
// their own, so that no product waits for the one before it.
template <int kPlanes>
PICOLM_INLINE void multiply_64(const StepQ256& step, int k) {
    const PanelQ256& p = *step.panel;
    _tile_loadd(6, step.x[0]->q[16 * k], 64);
    _tile_loadd(4, p.plane[0][0] + 64 * k, kQK);
    if (kPlanes == 2 || k % 2 == 0) _tile_dpbssd(0, 4, 6);
    if (kPlanes == 1 && k % 2 == 1) _tile_dpbssd(1, 4, 6);
    if (kPlanes == 2) {
        _tile_loadd(5, p.plane[1][0] + 64 * k, kQK);
        _tile_dpbssd(1, 5, 6);
    }
    if (!step.x[1]) return;
    _tile_loadd(7, step.x[1]->q[16 * k], 64);
    if (kPlanes == 2 || k % 2 == 0) _tile_dpbssd(2, 4, 7);
    if (kPlanes == 1 && k % 2 == 1) _tile_dpbssd(3, 4, 7);
    if (kPlanes == 2) _tile_dpbssd(3, 5, 7);
}

constexpr uint32_t kPanelTiles = 8;  // tiles that share one unpacking: 128 tokens

struct WorkQ256 {
    PanelQ256 panel[2];  // the one in use and the next
    Sums sums[2][2][2];  // [step mod 2][tile][plane]
    VecF acc[kPanelTiles][16];
};
static_assert(sizeof(WorkQ256) <= kPanelBytes);

// 16 rows against n tiles, at x + i * n_blocks each. Between the products of a step stand the float
// steps of the one before and the unpacking of the next block.
template <class Format>
void multiply_q256(const MatArgs& a, WorkQ256& work, const uint8_t* const row[16], const ActTile* x,
                   uint32_t n) {
    constexpr int kPlanes = Planes<Format>::kCount;
    const uint32_t n_blocks = a.n_in / kQK;
    const auto ahead = [&](uint32_t b) {
        return bytes_ahead(a, 16, b, n_blocks, sizeof(typename Format::Block));
    };
    for (int r = 0; r < 16; r += 4) unpack_four<Format>(work.panel[0], row, r, 0, ahead(0));
    StepQ256 before{};
    int side = 0;
    const uint32_t n_steps = (n + 1) / 2;
    for (uint32_t b = 0; b < n_blocks; ++b) {
        // Of a block's 4 * n_steps pauses, four are for unpacking.
        uint32_t pause = 0, unpack_at = b + 1 < n_blocks ? 0 : ~0u;
        int unpack_row = 0;
        for (uint32_t i = 0; i < n_steps; ++i) {
            const uint32_t t = 2 * i;
            StepQ256 step{
                &work.panel[b % 2], {x + t * n_blocks + b, nullptr}, {work.acc[t], nullptr}};
            if (t + 1 < n) {
                step.x[1] = x + (t + 1) * n_blocks + b;
                step.acc[1] = work.acc[t + 1];
            }
            barrier();
            _tile_zero(0);
            _tile_zero(1);
            _tile_zero(2);
            _tile_zero(3);
            for (int k = 0; k < 4; ++k) {
                multiply_64<kPlanes>(step, k);
                finish_rows<Format>(before, work.sums[1 - side], 4 * k);
                if (pause++ != unpack_at) continue;
                unpack_four<Format>(work.panel[(b + 1) % 2], row, unpack_row, b + 1, ahead(b + 1));
                unpack_at += n_steps;
                unpack_row += 4;
            }
            _tile_stored(0, work.sums[side][0][0], 64);
            _tile_stored(1, work.sums[side][0][1], 64);
            _tile_stored(2, work.sums[side][1][0], 64);
            _tile_stored(3, work.sums[side][1][1], 64);
            before = step;
            side = 1 - side;
        }
    }
    barrier();
    for (int r = 0; r < 16; r += 4) finish_rows<Format>(before, work.sums[1 - side], r);
}

template <class Format>
void large_q256(const MatArgs& a, const uint8_t* tiles, uint8_t* scratch) {
    WorkQ256& work = *reinterpret_cast<WorkQ256*>(scratch);
    const auto* x = reinterpret_cast<const ActTile*>(tiles);
    const uint32_t n_blocks = a.n_in / kQK, n_tiles = (a.n_tok + kTileTokens - 1) / kTileTokens;
    configure_tiles(64);
    for (uint32_t r0 = 0; r0 < a.n_rows; r0 += 16) {
        const uint32_t n_rows = a.n_rows - r0 < 16 ? a.n_rows - r0 : 16;
        const uint8_t* row[16];
        row_pointers<16>(a, r0, row);
        for (uint32_t t0 = 0; t0 < n_tiles; t0 += kPanelTiles) {
            const uint32_t n = n_tiles - t0 < kPanelTiles ? n_tiles - t0 : kPanelTiles;
            std::memset(work.acc, 0, n * sizeof work.acc[0]);
            multiply_q256<Format>(a, work, row, x + t0 * n_blocks, n);
            for (uint32_t t = 0; t < n; ++t) store_tile(work.acc[t], a, t0 + t, r0, n_rows);
        }
    }
    _tile_release();
}

// ---- 32-element blocks

// Eight 32-blocks of 16 rows.
struct alignas(64) PanelQ32 {
    int8_t q[16][kQK];
    float d[16][8];
    float m[16][8];
};

template <class Format>
void unpack_panel(PanelQ32& p, const uint8_t* const row[16], uint32_t b, uint32_t n, size_t ahead) {
    using Block = typename Format::Block;
    for (int r = 0; r < 16; ++r) {
        const Block* block = reinterpret_cast<const Block*>(row[r]) + b;
        prefetch(reinterpret_cast<const uint8_t*>(block) + ahead, 8 * sizeof(Block));
        Vec q[4];
        __m128i d, m;
        unpack_row<Format>(block, n, q, d, m);
        for (int k = 0; k < 4; ++k)
            store(p.q[r] + 64 * k,
                  _mm512_sub_epi8(q[k], _mm512_set1_epi8(static_cast<int8_t>(Format::kOffset))));
        _mm256_store_ps(p.d[r], _mm256_cvtph_ps(d));
        if (Format::kHasMin) _mm256_store_ps(p.m[r], _mm256_cvtph_ps(m));
    }
}

// Two 32-blocks, g and g + 1 (when n_groups is 2), of 16 rows against one or two tiles.
struct StepQ32 {
    uint32_t g;
    uint32_t n_groups;
    const ActTile* x[2];  // the second may be missing
    VecF (*acc[2])[8];    // [16 rows][8 accumulators]
};

// acc += da * (d * S + m * M) of one tile and group, for eight rows.
template <class Format>
[[gnu::noinline]] void finish_rows(const PanelQ32& p, const ActTile& x, uint32_t g, VecF (*acc)[8],
                                   const Sums& sums, int r0) {
    const VecF da = _mm512_load_ps(x.d[g]);
    VecF act_sums = _mm512_setzero_ps();
    if (Format::kHasMin)
        act_sums = _mm512_cvtepi32_ps(_mm512_madd_epi16(load(x.sums16[g]), _mm512_set1_epi16(1)));
#pragma GCC unroll 8
    for (int r = r0; r < r0 + 8; ++r) {
        VecF term = _mm512_mul_ps(_mm512_set1_ps(p.d[r][g]), _mm512_cvtepi32_ps(load(sums[r])));
        if (Format::kHasMin)
            term = _mm512_add_ps(term, _mm512_mul_ps(_mm512_set1_ps(p.m[r][g]), act_sums));
        acc[r][g] = _mm512_add_ps(acc[r][g], _mm512_mul_ps(da, term));
    }
}

template <class Format>
PICOLM_INLINE void finish_half(const PanelQ32& p, const StepQ32& step, const Sums (*sums)[2],
                               int r0) {
    for (int t = 0; t < 2 && step.x[t]; ++t)
        for (uint32_t group = 0; group < step.n_groups; ++group)
            finish_rows<Format>(p, *step.x[t], step.g + group, step.acc[t], sums[t][group], r0);
}

PICOLM_INLINE void multiply_group(const PanelQ32& p, const StepQ32& step, uint32_t group) {
    const uint32_t g = step.g + group;
    if (group == 0) {
        _tile_loadd(4, p.q[0] + 32 * g, kQK);
        _tile_loadd(6, step.x[0]->q[8 * g], 64);
        _tile_dpbssd(0, 4, 6);
        if (!step.x[1]) return;
        _tile_loadd(7, step.x[1]->q[8 * g], 64);
        _tile_dpbssd(2, 4, 7);
    } else {
        _tile_loadd(5, p.q[0] + 32 * g, kQK);
        _tile_loadd(6, step.x[0]->q[8 * g], 64);
        _tile_dpbssd(1, 5, 6);
        if (!step.x[1]) return;
        _tile_loadd(7, step.x[1]->q[8 * g], 64);
        _tile_dpbssd(3, 5, 7);
    }
}

constexpr uint32_t kPanelTilesQ32 = 4;

struct WorkQ32 {
    PanelQ32 panel;
    Sums sums[2][2][2];  // [step mod 2][tile][group]
    VecF acc[kPanelTilesQ32][16][8];
};
static_assert(sizeof(WorkQ32) <= kPanelBytes);

// n_groups 32-blocks of the panel against n tiles, at x + i * stride each.
template <class Format>
void multiply_q32(WorkQ32& work, const ActTile* x, size_t stride, uint32_t n, uint32_t n_groups) {
    StepQ32 before{};
    int side = 0;
    for (uint32_t t = 0; t < n; t += 2)
        for (uint32_t g = 0; g < n_groups; g += 2) {
            StepQ32 step{
                g, g + 1 < n_groups ? 2u : 1u, {x + t * stride, nullptr}, {work.acc[t], nullptr}};
            if (t + 1 < n) {
                step.x[1] = x + (t + 1) * stride;
                step.acc[1] = work.acc[t + 1];
            }
            barrier();
            _tile_zero(0);
            _tile_zero(1);
            _tile_zero(2);
            _tile_zero(3);
            multiply_group(work.panel, step, 0);
            finish_half<Format>(work.panel, before, work.sums[1 - side], 0);
            if (step.n_groups == 2) multiply_group(work.panel, step, 1);
            finish_half<Format>(work.panel, before, work.sums[1 - side], 8);
            _tile_stored(0, work.sums[side][0][0], 64);
            _tile_stored(1, work.sums[side][0][1], 64);
            _tile_stored(2, work.sums[side][1][0], 64);
            _tile_stored(3, work.sums[side][1][1], 64);
            before = step;
            side = 1 - side;
        }
    barrier();
    for (int r = 0; r < 16; r += 8) finish_half<Format>(work.panel, before, work.sums[1 - side], r);
}

template <class Format>
void large_q32(const MatArgs& a, const uint8_t* tiles, uint8_t* scratch) {
    WorkQ32& work = *reinterpret_cast<WorkQ32*>(scratch);
    const auto* x = reinterpret_cast<const ActTile*>(tiles);
    const uint32_t n_blocks = a.n_in / kQK32, n_tiles = (a.n_tok + kTileTokens - 1) / kTileTokens;
    const uint32_t n_wide = static_cast<uint32_t>(act_blocks(a.n_in));
    configure_tiles(32);
    for (uint32_t r0 = 0; r0 < a.n_rows; r0 += 16) {
        const uint32_t n_rows = a.n_rows - r0 < 16 ? a.n_rows - r0 : 16;
        const uint8_t* row[16];
        row_pointers<16>(a, r0, row);
        for (uint32_t t0 = 0; t0 < n_tiles; t0 += kPanelTilesQ32) {
            const uint32_t n = n_tiles - t0 < kPanelTilesQ32 ? n_tiles - t0 : kPanelTilesQ32;
            std::memset(work.acc, 0, n * sizeof work.acc[0]);
            for (uint32_t b = 0; b < n_wide; ++b) {
                const uint32_t n_groups = n_blocks - 8 * b < 8 ? n_blocks - 8 * b : 8;
                unpack_panel<Format>(
                    work.panel, row, 8 * b, n_groups,
                    bytes_ahead(a, 16, b, n_wide, 8 * sizeof(typename Format::Block)));
                multiply_q32<Format>(work, x + t0 * n_wide + b, n_wide, n, n_groups);
            }
            for (uint32_t t = 0; t < n; ++t) {
                VecF out[16];
                for (int r = 0; r < 16; ++r) out[r] = tree_of_vectors(work.acc[t][r]);
                store_tile(out, a, t0 + t, r0, n_rows);
            }
        }
    }
    _tile_release();
}

}  // namespace

void fill_amx(Kernels& table) {
    const auto large = [&](TensorType type, MatLarge kernel) {
        table.large.mat[static_cast<size_t>(type)] = kernel;
    };
    large(TensorType::q2_k, large_q256<Q2K>);
    large(TensorType::q3_k, large_q256<Q3K>);
    large(TensorType::q4_k, large_q256<Q4K>);
    large(TensorType::q5_k, large_q256<Q5K>);
    large(TensorType::q6_k, large_q256<Q6K>);
    large(TensorType::iq4_xs, large_q256<IQ4XS>);
    large(TensorType::q4_0, large_q32<Q4_0>);
    large(TensorType::q4_1, large_q32<Q4_1>);
    large(TensorType::q5_0, large_q32<Q5_0>);
    large(TensorType::q5_1, large_q32<Q5_1>);
    large(TensorType::q8_0, large_q32<Q8_0>);
    large(TensorType::iq4_nl, large_q32<IQ4NL>);
}

}  // namespace picolm
