// Sizes of the block structs against the table of tensor types, and the scale unpacking against a
// definition bit by bit.
#include "kernels/blocks.h"

#include <gtest/gtest.h>

namespace picolm {
namespace {

template <typename Block>
void expect_geometry(TensorType type, int elements) {
    EXPECT_EQ(sizeof(Block), info(type).block_bytes) << info(type).name;
    EXPECT_EQ(static_cast<uint32_t>(elements), info(type).block_size) << info(type).name;
}

TEST(Blocks, AgreeWithTheTableOfTypes) {
    expect_geometry<BlockQ4_0>(TensorType::q4_0, kQK32);
    expect_geometry<BlockQ4_1>(TensorType::q4_1, kQK32);
    expect_geometry<BlockQ5_0>(TensorType::q5_0, kQK32);
    expect_geometry<BlockQ5_1>(TensorType::q5_1, kQK32);
    expect_geometry<BlockQ8_0>(TensorType::q8_0, kQK32);
    expect_geometry<BlockQ2_K>(TensorType::q2_k, kQK);
    expect_geometry<BlockQ3_K>(TensorType::q3_k, kQK);
    expect_geometry<BlockQ4_K>(TensorType::q4_k, kQK);
    expect_geometry<BlockQ5_K>(TensorType::q5_k, kQK);
    expect_geometry<BlockQ6_K>(TensorType::q6_k, kQK);
    expect_geometry<BlockIQ4_NL>(TensorType::iq4_nl, kQK32);
    expect_geometry<BlockIQ4_XS>(TensorType::iq4_xs, kQK);
}

// Twelve bytes that run through many patterns.
void fill(uint8_t packed[kScaleBytes], uint32_t seed) {
    for (int i = 0; i < kScaleBytes; ++i) {
        seed = seed * 1664525u + 1013904223u;
        packed[i] = static_cast<uint8_t>(seed >> 24);
    }
}

TEST(Blocks, UnpacksQ4KScales) {
    for (uint32_t seed = 0; seed < 1000; ++seed) {
        uint8_t p[kScaleBytes], scales[8], mins[8];
        fill(p, seed);
        unpack_q4_k_scales(p, scales, mins);
        for (int i = 0; i < 4; ++i) {
            ASSERT_EQ(scales[i], p[i] % 64);
            ASSERT_EQ(mins[i], p[i + 4] % 64);
            ASSERT_EQ(scales[i + 4], p[i + 8] % 16 + 16 * (p[i] / 64));
            ASSERT_EQ(mins[i + 4], p[i + 8] / 16 + 16 * (p[i + 4] / 64));
        }
    }
}

TEST(Blocks, UnpacksQ3KScales) {
    for (uint32_t seed = 0; seed < 1000; ++seed) {
        uint8_t p[kScaleBytes];
        int8_t scales[16];
        fill(p, seed);
        unpack_q3_k_scales(p, scales);
        for (int i = 0; i < 16; ++i) {
            const int low = i < 8 ? p[i] % 16 : p[i - 8] / 16;
            const int high = (p[8 + i % 4] >> (2 * (i / 4))) % 4;
            ASSERT_EQ(scales[i], low + 16 * high - 32);
        }
    }
}

TEST(Blocks, UnpacksIq4XsScales) {
    const uint8_t low[4] = {0x10, 0x32, 0xf4, 0x8f};
    int8_t scales[8];
    unpack_iq4_xs_scales(0b11'10'01'00'11'10'01'00, low, scales);
    const int expected[8] = {0 - 32, 1 + 16 - 32,  2 + 32 - 32,  3 + 48 - 32,
                             4 - 32, 15 + 16 - 32, 15 + 32 - 32, 8 + 48 - 32};
    for (int i = 0; i < 8; ++i) EXPECT_EQ(scales[i], expected[i]) << i;
}

}  // namespace
}  // namespace picolm
