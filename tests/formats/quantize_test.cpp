// quantize_row: error bounds on reference and on our own data, the same bytes on every machine,
// and the blocks that are hard to scale.
#include "kernels/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "formats/formats_support.h"

namespace picolm {
namespace {

using testing::read_array;

std::vector<uint8_t> quantized(TensorType type, const std::vector<float>& x) {
    std::vector<uint8_t> row(row_bytes(type, x.size()));
    quantize_row(type, x.data(), row.data(), x.size());
    return row;
}

std::vector<float> round_trip(TensorType type, const std::vector<float>& x) {
    const std::vector<uint8_t> row = quantized(type, x);
    std::vector<float> y(x.size());
    dequantize_row(type, row.data(), y.data(), y.size());
    return y;
}

double relative_error(const std::vector<float>& x, const std::vector<float>& y) {
    double error = 0;
    double power = 0;
    for (size_t i = 0; i < x.size(); ++i) {
        const double difference = double{y[i]} - x[i];
        error += difference * difference;
        power += double{x[i]} * x[i];
    }
    return std::sqrt(error / power);
}

// 64 rows of 512: nearly normal, each row with its own deviation and some with an offset.
std::vector<float> own_data() {
    testing::Random random(20);
    std::vector<float> x;
    for (int row = 0; row < 64; ++row) {
        const float size = std::ldexp(1.0f, row % 8 - 6);
        const float offset = row % 4 == 3 ? 0.25f : 0.0f;
        for (int i = 0; i < 512; ++i) x.push_back((random.bell() + offset) * size);
    }
    return x;
}

struct Expected {
    TensorType type;
    double error;   // of own_data(), at most
    uint64_t hash;  // of its bytes
};
constexpr Expected kExpected[] = {
    {TensorType::f32, 0, 0xeb5ea9763ca2f596u},
    {TensorType::f16, 0.000215, 0x7a2a0aa2713adafeu},
    {TensorType::bf16, 0.0017, 0x0e3fb884bc40dddau},
    {TensorType::q4_0, 0.0795, 0x295dc810ef0255e3u},
    {TensorType::q4_1, 0.0656, 0xba2020b3ec4f0ab4u},
    {TensorType::q5_0, 0.0399, 0x246855a851172bcfu},
    {TensorType::q5_1, 0.0319, 0xbe9bb7c3d2393258u},
    {TensorType::q8_0, 0.00531, 0xa0007721dbf58a3fu},
    {TensorType::q2_k, 0.251, 0xe095e453f0e4fc89u},
    {TensorType::q3_k, 0.14, 0x6f0eca54a13ea6cfu},
    {TensorType::q4_k, 0.0661, 0x76e88be0a02df05eu},
    {TensorType::q5_k, 0.0329, 0xdc74a09a4e5d41b9u},
    {TensorType::q6_k, 0.0175, 0xdb03c8d40e00c719u},
    {TensorType::iq4_nl, 0.074, 0x07278852fac6ccddu},
    {TensorType::iq4_xs, 0.0748, 0xdea5f0ec54e955f0u},
};

TEST(Quantize, ErrorIsNearTheReferenceQuantisers) {
    if (testing::golden_dir().empty()) GTEST_SKIP() << testing::kNoGolden;
    const std::string folder = testing::golden_dir() + "/dequant/";
    const auto x = read_array<float>(folder + "source.f32.bin");
    ASSERT_EQ(x.size(), 3u * 512);
    const auto types = nlohmann::json::parse(testing::read_text(folder + "types.json"));
    for (const TensorTypeInfo& t : tensor_types()) {
        if (t.type == TensorType::f32) continue;
        const double reference = types.at(testing::golden_name(t)).at("rel_rmse");
        const double ours = relative_error(x, round_trip(t.type, x));
        EXPECT_LE(ours, 1.15 * reference) << t.name;
    }
}

TEST(Quantize, ErrorOnOwnData) {
    const std::vector<float> x = own_data();
    ASSERT_EQ(std::size(kExpected), tensor_types().size());
    for (const Expected& e : kExpected) {
        const double error = relative_error(x, round_trip(e.type, x));
        EXPECT_LE(error, e.error) << info(e.type).name;
        // A bound that is never approached proves nothing.
        EXPECT_GE(error, 0.9 * e.error) << info(e.type).name;
    }
}

// A model file made on one machine equals the one made on another. After a change of the quantiser
// on purpose the numbers to put here are the ones that this test prints.
TEST(Quantize, SameBytesOnEveryMachine) {
    const std::vector<float> x = own_data();
    for (const Expected& e : kExpected)
        EXPECT_EQ(hash64(quantized(e.type, x)), e.hash) << info(e.type).name;
}

TEST(Quantize, ZerosStayZero) {
    const std::vector<float> x(512, 0.0f);
    for (const TensorTypeInfo& t : tensor_types()) EXPECT_EQ(round_trip(t.type, x), x) << t.name;
}

TEST(Quantize, ConstantRow) {
    for (const float c : {1.0f, -1.0f, 0.02f, -0.02f, 300.0f}) {
        const std::vector<float> x(512, c);
        for (const TensorTypeInfo& t : tensor_types())
            EXPECT_LE(relative_error(x, round_trip(t.type, x)), 0.01) << t.name << " of " << c;
    }
}

// The outlier keeps its value to a few percent and its neighbours do not get worse than nothing.
TEST(Quantize, OneOutlier) {
    for (const float outlier : {100.0f, -100.0f}) {
        std::vector<float> x(256);
        testing::Random random(3);
        for (float& v : x) v = random.bell();
        x[77] = outlier;
        for (const TensorTypeInfo& t : tensor_types()) {
            const std::vector<float> y = round_trip(t.type, x);
            EXPECT_NEAR(y[77], outlier, 7.0) << t.name;
            EXPECT_LE(relative_error(x, y), 0.12) << t.name;
        }
    }
}

// Scales saturate: the values do too, keep their sign, and nothing becomes infinite.
TEST(Quantize, HugeValuesSaturate) {
    const float limit = std::numeric_limits<float>::max();
    for (const float huge : {1e6f, 1e9f, 1e30f, limit}) {
        std::vector<float> x(512);
        testing::Random random(4);
        for (size_t i = 0; i < x.size(); ++i) x[i] = i % 5 == 0 ? random.bell() : -huge;
        for (size_t i = 0; i < x.size(); i += 7) x[i] = huge;
        for (const TensorTypeInfo& t : tensor_types()) {
            const std::vector<float> y = round_trip(t.type, x);
            for (size_t i = 0; i < y.size(); ++i) {
                ASSERT_TRUE(std::isfinite(y[i])) << t.name << " of " << huge << " at " << i;
                if (i % 7 == 0) {
                    ASSERT_GT(y[i], 0) << t.name << " of " << huge << " at " << i;
                } else if (i % 5 != 0) {
                    ASSERT_LT(y[i], 0) << t.name << " of " << huge << " at " << i;
                }
            }
        }
    }
}

TEST(Quantize, HalvesSaturate) {
    const std::vector<float> x = {65504.0f, 65519.0f, 65520.0f, -1e30f};
    EXPECT_EQ(round_trip(TensorType::f16, x),
              (std::vector<float>{65504.0f, 65504.0f, 65504.0f, -65504.0f}));
    const std::vector<float> y = {std::numeric_limits<float>::max(), -0x1.ffp127f};
    EXPECT_EQ(round_trip(TensorType::bf16, y), (std::vector<float>{0x1.fep127f, -0x1.fep127f}));
}

// Scales that a half holds with few digits, or would round to zero, cost almost no accuracy: the
// codes and sub-scales are chosen for the scale as it is stored.
TEST(Quantize, SmallValuesKeepTheirAccuracy) {
    std::vector<float> x(512);
    testing::Random random(5);
    for (float& v : x) v = random.bell() * 5e-5f;
    for (const Expected& e : kExpected) {
        if (e.type == TensorType::f16) continue;  // subnormal by itself
        EXPECT_LE(relative_error(x, round_trip(e.type, x)), 1.2 * e.error) << info(e.type).name;
    }
}

// Down to where a half has no digits left the error is a fraction of the smallest half; below that
// all is zero.
TEST(Quantize, TinyValues) {
    for (const float size : {1e-4f, 1e-6f, 1e-8f, 1e-12f, 1e-30f, 1e-42f}) {
        std::vector<float> x(512);
        testing::Random random(5);
        for (float& v : x) v = random.bell() * size;
        for (const TensorTypeInfo& t : tensor_types()) {
            if (t.type == TensorType::f32 || t.type == TensorType::bf16) continue;
            const std::vector<float> y = round_trip(t.type, x);
            // Two bits leave steps of the size of the values; a sub-scale that rounds to zero loses
            // up to 32 codes times the smallest half.
            const float bound = 0.5f * size + 32 * 0x1p-24f;
            for (size_t i = 0; i < y.size(); ++i)
                ASSERT_LE(std::fabs(y[i] - x[i]), bound) << t.name << " of " << size << " at " << i;
            if (size <= 1e-8f) {
                ASSERT_EQ(y, std::vector<float>(512, 0.0f)) << t.name;
            }
        }
    }
}

// What the caller promises not to send is still no undefined behaviour.
TEST(Quantize, NonFiniteInputIsDefined) {
    const float inf = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const float odd : {inf, -inf, nan, -nan})
        for (const TensorTypeInfo& t : tensor_types()) {
            std::vector<float> x(256, odd);
            quantized(t.type, x);
            testing::Random random(6);
            for (size_t i = 0; i < x.size(); i += 2) x[i] = random.bell();
            quantized(t.type, x);
        }
}

TEST(Quantize, RandomBitsAreDefined) {
    testing::Random random(8);
    for (int round = 0; round < 200; ++round) {
        std::vector<float> x(256);
        for (float& v : x) {
            const uint32_t bits = random.next();
            std::memcpy(&v, &bits, sizeof v);
            if (!std::isfinite(v)) v = 0;
        }
        for (const TensorTypeInfo& t : tensor_types())
            for (const float v : round_trip(t.type, x)) ASSERT_TRUE(std::isfinite(v)) << t.name;
    }
}

TEST(Quantize, RowMayLieAtAnyAddress) {
    const std::vector<float> x = own_data();
    for (const TensorTypeInfo& t : tensor_types()) {
        const std::vector<uint8_t> expected = quantized(t.type, x);
        std::vector<uint8_t> shifted(expected.size() + 1);
        quantize_row(t.type, x.data(), shifted.data() + 1, x.size());
        EXPECT_TRUE(std::equal(expected.begin(), expected.end(), shifted.begin() + 1)) << t.name;
    }
}

}  // namespace
}  // namespace picolm
