// The tile registers of AMX as a thread's arrays, after the Intel instruction set reference: shapes
// come from the configuration, and what the CPU would refuse with a fault ends the program.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace emulated {

struct TileConfig {
    uint8_t palette, start_row, reserved[14];
    uint16_t colsb[16];
    uint8_t rows[16];
};
static_assert(sizeof(TileConfig) == 64);

struct Tiles {
    TileConfig config{};  // palette 0: the initial state
    alignas(64) uint8_t tile[8][16][64]{};
};
inline Tiles& tiles() {
    thread_local Tiles state;
    return state;
}

inline void require(bool ok, const char* what) {
    if (ok) return;
    std::fprintf(stderr, "AMX emulation: %s\n", what);
    std::abort();
}
inline void require_configured(int t) {
    require(t >= 0 && t < 8, "there are eight tiles");
    require(tiles().config.palette == 1, "no tile configuration is loaded");
    require(tiles().config.rows[t] > 0 && tiles().config.colsb[t] > 0, "the tile has no shape");
}

inline void load_config(const void* p) {
    TileConfig c;
    std::memcpy(&c, p, sizeof c);
    require(c.palette == 1, "palette");
    require(c.start_row == 0, "start row");
    for (const uint8_t byte : c.reserved) require(byte == 0, "reserved bytes of the configuration");
    for (int t = 0; t < 16; ++t) {
        require(t < 8 || (c.rows[t] == 0 && c.colsb[t] == 0), "more than eight tiles");
        require(c.rows[t] <= 16 && c.colsb[t] <= 64, "a tile is at most 16 rows of 64 bytes");
        require((c.rows[t] == 0) == (c.colsb[t] == 0), "half of a shape");
    }
    tiles() = Tiles{};
    tiles().config = c;
}
inline void release() {
    tiles() = Tiles{};
}
inline void zero(int t) {
    require_configured(t);
    std::memset(tiles().tile[t], 0, sizeof tiles().tile[t]);
}
inline void load_tile(int t, const void* base, size_t stride) {
    require_configured(t);
    std::memset(tiles().tile[t], 0, sizeof tiles().tile[t]);
    for (int r = 0; r < tiles().config.rows[t]; ++r)
        std::memcpy(tiles().tile[t][r], static_cast<const char*>(base) + r * stride,
                    tiles().config.colsb[t]);
}
inline void store_tile(int t, void* base, size_t stride) {
    require_configured(t);
    for (int r = 0; r < tiles().config.rows[t]; ++r)
        std::memcpy(static_cast<char*>(base) + r * stride, tiles().tile[t][r],
                    tiles().config.colsb[t]);
}
// c[m][n] += sum over k and i < 4 of a[m][4k + i] * b[k][4n + i].
template <class A, class B>
void multiply(int c, int a, int b) {
    for (const int t : {a, b, c}) require_configured(t);
    require(a != b && a != c && b != c, "three different tiles");
    Tiles& s = tiles();
    require(s.config.rows[a] == s.config.rows[c], "rows of the sum");
    require(s.config.colsb[b] == s.config.colsb[c], "columns of the sum");
    require(s.config.colsb[a] == 4 * s.config.rows[b], "inner dimension");
    for (int m = 0; m < s.config.rows[c]; ++m)
        for (int n = 0; n < s.config.colsb[c] / 4; ++n) {
            uint32_t sum;
            std::memcpy(&sum, &s.tile[c][m][4 * n], 4);
            for (int k = 0; k < s.config.rows[b]; ++k)
                for (int i = 0; i < 4; ++i)
                    sum += static_cast<uint32_t>(static_cast<A>(s.tile[a][m][4 * k + i]) *
                                                 static_cast<B>(s.tile[b][k][4 * n + i]));
            std::memcpy(&s.tile[c][m][4 * n], &sum, 4);
        }
}

}  // namespace emulated

#define _tile_loadconfig(p) emulated::load_config(p)
#define _tile_release() emulated::release()
#define _tile_zero(t) emulated::zero(t)
#define _tile_loadd(t, base, stride) emulated::load_tile(t, base, stride)
#define _tile_stored(t, base, stride) emulated::store_tile(t, base, stride)
#define _tile_dpbssd(c, a, b) emulated::multiply<int8_t, int8_t>(c, a, b)
#define _tile_dpbsud(c, a, b) emulated::multiply<int8_t, uint8_t>(c, a, b)
#define _tile_dpbusd(c, a, b) emulated::multiply<uint8_t, int8_t>(c, a, b)
#define _tile_dpbuud(c, a, b) emulated::multiply<uint8_t, uint8_t>(c, a, b)
