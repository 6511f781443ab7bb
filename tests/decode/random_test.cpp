#include "decode/random.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

namespace picolm {
namespace {

using Words = std::array<uint32_t, 4>;

// The known answers that Random123 publishes (kat_vectors) for philox4x32-10.
TEST(RandomTest, PhiloxKnownAnswers) {
    EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
              (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    const uint32_t f = 0xffffffff;
    EXPECT_EQ(philox4x32({f, f, f, f}, {f, f}),
              (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(
        philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
        (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomTest, EveryInputChangesHalfTheBits) {
    const auto distance = [](uint64_t a, uint64_t b) { return std::popcount(a ^ b); };
    int by_seed = 0, by_position = 0, by_attempt = 0, high = 0;
    constexpr int kTrials = 2000;
    for (uint64_t i = 0; i < kTrials; ++i) {
        const uint64_t base = random_bits(i, 1000 + i, 0);
        by_seed += distance(base, random_bits(i ^ 1, 1000 + i, 0));
        by_position += distance(base, random_bits(i, 1001 + i, 0));
        by_attempt += distance(base, random_bits(i, 1000 + i, 1));
        high += distance(base, random_bits(i ^ uint64_t{1} << 63, 1000 + i, 0));
    }
    for (const int sum : {by_seed, by_position, by_attempt, high})
        EXPECT_NEAR(static_cast<double>(sum) / kTrials, 32.0, 0.5);  // sigma of the mean: 0.09
}

// Chi-square over 256 cells for each byte of 100,000 successive positions: mean 255, sigma 22.6.
TEST(RandomTest, BytesAreUniform) {
    for (int byte = 0; byte < 8; ++byte) {
        std::vector<int> cells(256);
        constexpr int kDraws = 100'000;
        for (uint64_t i = 0; i < kDraws; ++i) ++cells[random_bits(42, i, 0) >> (8 * byte) & 255];
        double chi = 0;
        const double expected = kDraws / 256.0;
        for (const int n : cells) chi += (n - expected) * (n - expected) / expected;
        EXPECT_LT(chi, 255 + 5 * 22.6);
        EXPECT_GT(chi, 255 - 5 * 22.6);
    }
}

TEST(RandomTest, NeighboursAreUncorrelated) {
    constexpr int kDraws = 100'000;
    double sum = 0, products = 0, previous = 0;
    for (uint64_t i = 0; i < kDraws; ++i) {
        const double u = static_cast<double>(random_bits(7, i, 0) >> 11) * 0x1p-53 - 0.5;
        sum += u;
        products += u * previous;
        previous = u;
    }
    EXPECT_NEAR(sum / kDraws, 0, 5 * 0.289 / 316);
    EXPECT_NEAR(products / kDraws, 0, 5 * 0.0833 / 316);
}

TEST(RandomTest, ScaleIsTheHighHalfOfTheProduct) {
    const uint64_t edges[] = {0,         1,          2,          0xffffffff,        0x100000000,
                              1u << 31u, UINT64_MAX, 1ull << 63, 0x123456789abcdef0};
    for (const uint64_t n : edges) {
        if (n == 0) continue;
        EXPECT_EQ(scale_to(0, n), 0u);
        EXPECT_EQ(scale_to(UINT64_MAX, n), n - 1);
    }
#if defined(__SIZEOF_INT128__)
    __extension__ using Wide = unsigned __int128;
    for (uint64_t i = 0; i < 10'000; ++i) {
        const uint64_t a = i < 81 ? edges[i / 9] : random_bits(1, i, 0);
        const uint64_t b = i < 81 ? edges[i % 9] : random_bits(2, i, 0) >> i % 64;
        EXPECT_EQ(scale_to(a, b), static_cast<uint64_t>(Wide{a} * b >> 64));
    }
#endif
}

}  // namespace
}  // namespace picolm
