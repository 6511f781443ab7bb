// Keys and values in every storage type: each level quantises and attends as the specification
// does, and the specification does what docs/NUMERICS.md says.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "kernels/half.h"
#include "kernels/kernels.h"
#ifdef PICOLM_EMULATED_LEVELS
#include "kernels/emulated/emulated.h"
#endif

namespace picolm {
namespace {

constexpr KvType kTypes[] = {KvType::f16, KvType::q8_0, KvType::q4_0};
constexpr uint16_t kNanHalf = 0x7e00;

// What this CPU can run, and what is emulated here.
std::vector<const Kernels*> levels_to_check() {
    std::vector<const Kernels*> levels;
    for (const std::string_view name : usable_levels()) levels.push_back(find_kernels(name));
    if (levels.size() > 1) levels.pop_back();
#ifdef PICOLM_EMULATED_LEVELS
    for (const Kernels* each : emulated_levels()) levels.push_back(each);
#endif
    return levels;
}

class KvLevelTest : public ::testing::TestWithParam<const Kernels*> {
  protected:
    const Kernels& spec = *find_kernels("generic");
    const Kernels& level = *GetParam();
    std::mt19937 rng{11};

    std::vector<float> floats(size_t n, float spread = 1.0f) {
        std::normal_distribution<float> normal(0.0f, spread);
        std::vector<float> values(n);
        for (float& v : values) v = normal(rng);
        return values;
    }
    // K or V of a page, allocated to the byte. Slots from `end` on hold bytes that nobody wrote,
    // and halves that are NaN.
    std::vector<uint8_t> page(KvType type, uint32_t size, bool transposed, uint32_t end) {
        const uint32_t n_blocks = kv_blocks(type, size), n_bytes = kv_data_bytes(type, size);
        std::vector<uint8_t> out(size_t{kPage} * kv_row_bytes(type, size));
        for (uint8_t& byte : out) byte = static_cast<uint8_t>(rng());
        uint16_t* scales = reinterpret_cast<uint16_t*>(out.data());
        uint8_t* data = out.data() + size_t{2} * n_blocks * kPage;
        const uint32_t unit = type == KvType::f16 ? 2 : 1;
        for (uint32_t j = 0; j < kPage; ++j) {
            std::vector<uint16_t> row_scales(n_blocks, kNanHalf), halves(size, kNanHalf);
            std::vector<uint8_t> row(n_bytes, 0xff);
            if (j < end) {
                const std::vector<float> x = floats(size, j % 5 == 0 ? 8.0f : 0.5f);
                if (type == KvType::f16)
                    spec.to_f16(x.data(), halves.data(), size);
                else
                    EXPECT_TRUE(
                        spec.quantize_kv(type, x.data(), size, row_scales.data(), row.data()));
            }
            if (type == KvType::f16) std::memcpy(row.data(), halves.data(), n_bytes);
            for (uint32_t b = 0; b < n_blocks; ++b) scales[b * kPage + j] = row_scales[b];
            for (uint32_t i = 0; i < n_bytes; i += unit)
                std::memcpy(
                    data + (transposed ? size_t{i} * kPage + unit * j : size_t{j} * n_bytes + i),
                    &row[i], unit);
        }
        return out;
    }
    void attend(KvTypes types, uint32_t n_k, uint32_t n_v, uint32_t n_q);
};
INSTANTIATE_TEST_SUITE_P(Levels, KvLevelTest, ::testing::ValuesIn(levels_to_check()),
                         [](const auto& param) { return std::string(param.param->name); });

// Windows of every kind over two pages.
void KvLevelTest::attend(KvTypes types, uint32_t n_k, uint32_t n_v, uint32_t n_q) {
    struct Window {
        uint32_t first, end;
    };
    const Window windows[] = {{0, 64}, {0, 1}, {5, 6}, {0, 33}, {7, 64}, {63, 64}, {40, 50}};
    const std::vector<float> q = floats(size_t{n_q} * n_k, 0.3f);
    std::vector<float> o_want(size_t{n_q} * n_v), o_got(size_t{n_q} * n_v);
    std::vector<AttnQuery> want, got;
    for (uint32_t i = 0; i < n_q; ++i) {
        want.push_back({&q[i * n_k], &o_want[i * n_v], -INFINITY, 0.0f, 0, 64});
        got.push_back({&q[i * n_k], &o_got[i * n_v], -INFINITY, 0.0f, 0, 64});
    }
    for (uint32_t round = 0; round < 2; ++round) {
        uint32_t end = 0;
        for (uint32_t i = 0; i < n_q; ++i) {
            const Window w = windows[(i * (round + 3) + n_q) % std::size(windows)];
            want[i].first = got[i].first = w.first;
            want[i].end = got[i].end = w.end;
            end = std::max(end, w.end);
        }
        const std::vector<uint8_t> k = page(types.k, n_k, true, end);
        const std::vector<uint8_t> v = page(types.v, n_v, false, end);
        spec.attn_page({k.data(), v.data(), types}, n_k, n_v, want.data(), n_q);
        level.attn_page({k.data(), v.data(), types}, n_k, n_v, got.data(), n_q);
    }
    ASSERT_EQ(std::memcmp(o_want.data(), o_got.data(), o_got.size() * sizeof(float)), 0)
        << kv_types_name(types) << " " << n_k << " " << n_v << " " << n_q;
    for (uint32_t i = 0; i < n_q; ++i) {
        ASSERT_EQ(want[i].m, got[i].m);
        ASSERT_EQ(want[i].l, got[i].l);
    }
    for (const float each : o_got) ASSERT_TRUE(std::isfinite(each));
}

TEST_P(KvLevelTest, AttentionOfAllTypes) {
    struct Sizes {
        uint32_t n_k, n_v;
    };
    const Sizes sizes[] = {{64, 64}, {40, 80}, {80, 40},  {96, 112}, {112, 96},
                           {256, 8}, {8, 256}, {37, 101}, {33, 31},  {1, 1}};
    for (const KvType k : kTypes)
        for (const KvType v : kTypes)
            for (const auto [n_k, n_v] : sizes)
                for (const uint32_t n_q : {1u, 2u, 3u, 7u, 17u}) attend({k, v}, n_k, n_v, n_q);
}

TEST_P(KvLevelTest, QuantisesAsTheSpecification) {
    for (const KvType type : {KvType::q8_0, KvType::q4_0})
        for (uint32_t n = 1; n <= 130; ++n)
            for (const float spread : {1.0f, 1e-3f, 3e-6f, 1e-8f, 1e-30f, 0.0f, 1e4f}) {
                std::vector<float> x = floats(n, spread);
                if (n % 3 == 0) x[n / 2] = -x[0];  // both ends reach equally far, perhaps
                if (n % 7 == 0) x[n - 1] = -0.0f;
                const uint32_t n_blocks = kv_blocks(type, n), n_bytes = kv_data_bytes(type, n);
                std::vector<uint16_t> want(n_blocks), got(n_blocks, 0xaaaa);
                std::vector<uint8_t> want_data(n_bytes), got_data(n_bytes, 0xaa);
                ASSERT_TRUE(spec.quantize_kv(type, x.data(), n, want.data(), want_data.data()));
                ASSERT_TRUE(level.quantize_kv(type, x.data(), n, got.data(), got_data.data()));
                ASSERT_EQ(want, got) << n << " " << spread;
                ASSERT_EQ(want_data, got_data) << n << " " << spread;
            }
}

TEST_P(KvLevelTest, RoundsHalfToEvenAndStaysInRange) {
    // The scale is 1, so that every value is its own quotient.
    std::vector<float> x(32);
    for (int i = 0; i < 32; ++i) x[i] = static_cast<float>(i - 16) + 0.5f;
    x[0] = 127.0f;
    uint16_t scale = 0;
    int8_t q[32];
    ASSERT_TRUE(
        level.quantize_kv(KvType::q8_0, x.data(), 32, &scale, reinterpret_cast<uint8_t*>(q)));
    EXPECT_EQ(scale, 0x3c00);
    for (int i = 1; i < 32; ++i) ASSERT_EQ(q[i], std::nearbyint(x[i])) << i;

    for (int i = 0; i < 32; ++i) x[i] = static_cast<float>(i) * 0.5f - 8.0f;
    uint8_t pairs[16];
    ASSERT_TRUE(level.quantize_kv(KvType::q4_0, x.data(), 32, &scale, pairs));
    EXPECT_EQ(scale, 0x3c00);
    for (uint32_t i = 0; i < 32; ++i)
        ASSERT_EQ(kv_integer(KvType::q4_0, pairs, i), std::min(std::nearbyint(x[i]), 7.0f)) << i;
}

TEST_P(KvLevelTest, RefusesWhatATypeCannotHold) {
    struct Case {
        KvType type;
        float value;
        bool fits;
    };
    // The largest scale is 65519.99.., which rounds down to 65504.
    const float last8 = 65519.0f * 127.0f, first8 = 65521.0f * 127.0f;
    const float last4 = 65519.0f * 8.0f, first4 = 65520.0f * 8.0f;
    const Case cases[] = {{KvType::q8_0, last8, true},      {KvType::q8_0, first8, false},
                          {KvType::q8_0, -last8, true},     {KvType::q8_0, -first8, false},
                          {KvType::q4_0, last4, true},      {KvType::q4_0, first4, false},
                          {KvType::q4_0, -last4, true},     {KvType::q4_0, -first4, false},
                          {KvType::q8_0, INFINITY, false},  {KvType::q8_0, -INFINITY, false},
                          {KvType::q8_0, NAN, false},       {KvType::q4_0, INFINITY, false},
                          {KvType::q4_0, -INFINITY, false}, {KvType::q4_0, NAN, false},
                          {KvType::q8_0, 3e38f, false},     {KvType::q4_0, -3e38f, false}};
    for (const Case& c : cases)
        for (const uint32_t at : {0u, 13u, 31u, 32u, 36u}) {
            std::vector<float> x(37, 0.25f);
            x[at] = c.value;
            uint16_t scales[2];
            uint8_t data[37];
            EXPECT_EQ(level.quantize_kv(c.type, x.data(), 37, scales, data), c.fits)
                << c.value << " at " << at;
        }
}

std::vector<float> round_trip(KvType type, const std::vector<float>& x) {
    const auto n = static_cast<uint32_t>(x.size());
    std::vector<uint16_t> scales(kv_blocks(type, n));
    std::vector<uint8_t> data(kv_data_bytes(type, n));
    EXPECT_TRUE(
        find_kernels("generic")->quantize_kv(type, x.data(), n, scales.data(), data.data()));
    std::vector<float> back(n);
    for (uint32_t i = 0; i < n; ++i)
        back[i] =
            f16_to_f32(scales[i / kKvBlock]) * static_cast<float>(kv_integer(type, data.data(), i));
    return back;
}

TEST(KvTypeTest, ErrorIsHalfAStep) {
    std::mt19937 rng(5);
    std::normal_distribution<float> normal;
    for (int round = 0; round < 200; ++round) {
        std::vector<float> x(32);
        float most = 0;
        for (float& v : x) most = std::max(most, std::fabs(v = normal(rng)));
        const std::vector<float> q8 = round_trip(KvType::q8_0, x), q4 = round_trip(KvType::q4_0, x);
        for (size_t i = 0; i < x.size(); ++i) {
            EXPECT_LE(std::fabs(q8[i] - x[i]), most / 127 * 0.57f);
            // The end that has only 7 steps may be cut by a whole one.
            EXPECT_LE(std::fabs(q4[i] - x[i]), most / 8 * 1.01f);
        }
        // What was rounded once stays as it is.
        EXPECT_EQ(round_trip(KvType::q8_0, q8), q8);
        EXPECT_EQ(round_trip(KvType::q4_0, q4), q4);
    }
}

TEST(KvTypeTest, TinyBlocksBecomeZeros) {
    for (const KvType type : {KvType::q8_0, KvType::q4_0})
        for (const float value : {0.0f, -0.0f, 1e-38f, -1e-20f, 1e-8f}) {
            const std::vector<float> back = round_trip(type, std::vector<float>(40, value));
            EXPECT_EQ(back, std::vector<float>(40, 0.0f));
            for (const float each : back) EXPECT_FALSE(std::signbit(each));
        }
}

TEST(KvTypeTest, Names) {
    const KvTypes mixed{KvType::q8_0, KvType::q4_0};
    EXPECT_EQ(kv_types_name({}), "f16,f16");
    EXPECT_EQ(kv_types_name(mixed), "q8_0,q4_0");
    EXPECT_EQ(parse_kv_types("q8_0,q4_0"), mixed);
    EXPECT_EQ(parse_kv_types("q4_0"), (KvTypes{KvType::q4_0, KvType::q4_0}));
    EXPECT_EQ(parse_kv_types("f16"), KvTypes{});
    for (const char* bad : {"", "q8_0,", ",q8_0", "q8_0,q8_0,q8_0", "Q8_0", "q8_0, f16", "q5_0"})
        EXPECT_EQ(parse_kv_types(bad), std::nullopt) << bad;
}

TEST(KvTypeTest, Sizes) {
    EXPECT_EQ(kv_row_bytes(KvType::f16, 128), 256u);
    EXPECT_EQ(kv_row_bytes(KvType::q8_0, 128), 136u);
    EXPECT_EQ(kv_row_bytes(KvType::q4_0, 128), 72u);
    EXPECT_EQ(kv_row_bytes(KvType::q8_0, 80), 86u);
    EXPECT_EQ(kv_row_bytes(KvType::q4_0, 33), 4u + 17u);
}

}  // namespace
}  // namespace picolm
