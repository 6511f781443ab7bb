// dequantize_row against the reference rows, against a definition that looks up one element at a
// time, and on arbitrary bytes.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "formats/formats_support.h"
#include "kernels/blocks.h"
#include "kernels/half.h"
#include "kernels/quantize.h"

namespace picolm {
namespace {

using testing::golden_name;
using testing::read_array;

TEST(Dequantize, EqualsTheGoldenRowsBitForBit) {
    if (testing::golden_dir().empty()) GTEST_SKIP() << testing::kNoGolden;
    const std::string folder = testing::golden_dir() + "/dequant/";
    for (const TensorTypeInfo& t : tensor_types()) {
        if (t.type == TensorType::f32) continue;  // the reference has no file for it
        const auto row = read_array<uint8_t>(folder + golden_name(t) + ".q.bin");
        const auto expected = read_array<float>(folder + golden_name(t) + ".f32.bin");
        ASSERT_EQ(expected.size(), 3u * 512) << t.name;
        ASSERT_EQ(row.size(), row_bytes(t.type, expected.size())) << t.name;
        std::vector<float> x(expected.size());
        dequantize_row(t.type, row.data(), x.data(), x.size());
        for (size_t i = 0; i < x.size(); ++i)
            ASSERT_EQ(f32_to_bits(x[i]), f32_to_bits(expected[i])) << t.name << " element " << i;
    }
}

int bits(int byte, int first, int count) {
    return (byte >> first) & ((1 << count) - 1);
}

float half_at(const uint8_t* bytes) {
    return f16_to_f32(static_cast<uint16_t>(bytes[0] | bytes[1] << 8));
}

int nibble_of_32(const uint8_t* qs, int e) {
    return e < 16 ? bits(qs[e], 0, 4) : bits(qs[e - 16], 4, 4);
}

int pair_of_256(const uint8_t* qs, int e) {
    return bits(qs[e / 128 * 32 + e % 32], e % 128 / 32 * 2, 2);
}

int nibble_of_256(const uint8_t* qs, int e) {
    return bits(qs[e / 64 * 32 + e % 32], e % 64 / 32 * 4, 4);
}

int scale_of_k(const uint8_t* p, int s) {
    return s < 4 ? bits(p[s], 0, 6) : bits(p[s + 4], 0, 4) + 16 * bits(p[s - 4], 6, 2);
}

int min_of_k(const uint8_t* p, int s) {
    return s < 4 ? bits(p[s + 4], 0, 6) : bits(p[s + 4], 4, 4) + 16 * bits(p[s], 6, 2);
}

// Element e of a block, by byte offsets: shares nothing with the code under test but the halves
// and the levels of IQ4_NL.
float element(TensorType type, const uint8_t* b, int e) {
    const auto f = [](int q) { return static_cast<float>(q); };
    switch (type) {
        case TensorType::q4_0:
            return half_at(b) * f(nibble_of_32(b + 2, e) - 8);
        case TensorType::q4_1:
            return half_at(b) * f(nibble_of_32(b + 4, e)) + half_at(b + 2);
        case TensorType::q5_0:
            return half_at(b) * f(nibble_of_32(b + 6, e) + 16 * bits(b[2 + e / 8], e % 8, 1) - 16);
        case TensorType::q5_1:
            return half_at(b) * f(nibble_of_32(b + 8, e) + 16 * bits(b[4 + e / 8], e % 8, 1)) +
                   half_at(b + 2);
        case TensorType::q8_0:
            return half_at(b) * f(static_cast<int8_t>(b[2 + e]));
        case TensorType::q2_k:
            return half_at(b + 80) * f(bits(b[e / 16], 0, 4)) * f(pair_of_256(b + 16, e)) -
                   half_at(b + 82) * f(bits(b[e / 16], 4, 4));
        case TensorType::q3_k: {
            const int s = e / 16;
            const uint8_t* p = b + 96;
            const int scale = bits(p[s % 8], s / 8 * 4, 4) + 16 * bits(p[8 + s % 4], s / 4 * 2, 2);
            const int q = pair_of_256(b + 32, e) + 4 * bits(b[e % 32], e / 32, 1);
            return half_at(b + 108) * f(scale - 32) * f(q - 4);
        }
        case TensorType::q4_k:
            return half_at(b) * f(scale_of_k(b + 4, e / 32)) * f(nibble_of_256(b + 16, e)) -
                   half_at(b + 2) * f(min_of_k(b + 4, e / 32));
        case TensorType::q5_k: {
            const int q = nibble_of_256(b + 48, e) + 16 * bits(b[16 + e % 32], e / 32, 1);
            return half_at(b) * f(scale_of_k(b + 4, e / 32)) * f(q) -
                   half_at(b + 2) * f(min_of_k(b + 4, e / 32));
        }
        case TensorType::q6_k: {
            const int low = bits(b[e / 128 * 64 + e % 64], e % 128 / 64 * 4, 4);
            const int q = low + 16 * pair_of_256(b + 128, e) - 32;
            return half_at(b + 208) * f(static_cast<int8_t>(b[192 + e / 16])) * f(q);
        }
        case TensorType::iq4_nl:
            return half_at(b) * f(kIq4Levels[nibble_of_32(b + 2, e)]);
        case TensorType::iq4_xs: {
            const int s = e / 32;
            const int high = bits(b[2 + s / 4], s % 4 * 2, 2);
            const int scale = bits(b[4 + s / 2], s % 2 * 4, 4) + 16 * high - 32;
            return half_at(b) * f(scale) * f(kIq4Levels[nibble_of_32(b + 8 + 16 * s, e % 32)]);
        }
        case TensorType::f16:
            return half_at(b);
        case TensorType::bf16:
            return bf16_to_f32(static_cast<uint16_t>(b[0] | b[1] << 8));
        case TensorType::f32:
            float value;
            std::memcpy(&value, b, sizeof value);
            return value;
    }
    return 0;
}

// Random bytes on a heap block of exactly their size and at an odd address: any read outside, any
// shift or conversion that is not defined, and any misaligned access is a sanitizer report. Random
// halves are NaN or infinite once in 32.
TEST(Dequantize, IsDefinedOnAnyBytesAndEqualsTheElementwiseDefinition) {
    testing::Random random(7);
    for (const TensorTypeInfo& t : tensor_types()) {
        const int elements = static_cast<int>(t.block_size);
        int odd = 0;
        for (int round = 0; round < 2000; ++round) {
            const auto bytes = std::make_unique<uint8_t[]>(t.block_bytes + 1);
            for (uint32_t i = 0; i < t.block_bytes; ++i)
                bytes[1 + i] = static_cast<uint8_t>(random.next());
            const auto x = std::make_unique<float[]>(t.block_size);
            dequantize_row(t.type, bytes.get() + 1, x.get(), t.block_size);
            for (int e = 0; e < elements; ++e) {
                const float expected = element(t.type, bytes.get() + 1, e);
                odd += !std::isfinite(expected);
                if (std::isnan(expected)) {
                    ASSERT_TRUE(std::isnan(x[e])) << t.name << " element " << e;
                } else {
                    ASSERT_EQ(f32_to_bits(x[e]), f32_to_bits(expected)) << t.name << " at " << e;
                }
            }
        }
        EXPECT_GT(odd, 0) << t.name << ": the bytes never held a NaN or an infinity";
    }
}

TEST(Dequantize, ExtremeBytes) {
    for (const TensorTypeInfo& t : tensor_types())
        for (const int fill : {0x00, 0xff, 0x7f, 0x80}) {
            const std::vector<uint8_t> row(t.block_bytes, static_cast<uint8_t>(fill));
            std::vector<float> x(t.block_size, 1.0f);
            dequantize_row(t.type, row.data(), x.data(), x.size());
            for (uint32_t e = 0; e < t.block_size; ++e) {
                const float expected = element(t.type, row.data(), static_cast<int>(e));
                ASSERT_TRUE(x[e] == expected || (std::isnan(x[e]) && std::isnan(expected)))
                    << t.name << " filled with " << fill << " at " << e;
            }
        }
}

TEST(Dequantize, EmptyRow) {
    for (const TensorTypeInfo& t : tensor_types()) dequantize_row(t.type, nullptr, nullptr, 0);
}

}  // namespace
}  // namespace picolm
