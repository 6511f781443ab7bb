// Every level gives the bits of the specification (`generic`): all formats, odd sizes, batches.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "kernels/half.h"
#include "kernels/kernels.h"
#include "kernels/quantize.h"
#ifdef PICOLM_EMULATED_LEVELS
#include "kernels/emulated/emulated.h"
#endif

namespace picolm {
namespace {

// Where in a block of the type its halves are: the first byte, how many bytes.
std::pair<size_t, size_t> halves_of(TensorType type) {
    const bool at_end =
        type == TensorType::q2_k || type == TensorType::q3_k || type == TensorType::q6_k;
    const bool two = type == TensorType::q4_1 || type == TensorType::q5_1 ||
                     type == TensorType::q2_k || type == TensorType::q4_k ||
                     type == TensorType::q5_k;
    const size_t n = two ? 4 : 2;
    return {at_end ? info(type).block_bytes - n : 0, n};
}

class LevelTest : public ::testing::TestWithParam<const Kernels*> {
  protected:
    const Kernels& spec = *find_kernels("generic");
    const Kernels& level = *GetParam();
    std::mt19937 rng{7};

    std::vector<float> floats(size_t n, float spread = 1.0f) {
        std::normal_distribution<float> normal(0.0f, spread);
        std::vector<float> values(n);
        for (float& v : values) v = normal(rng);
        return values;
    }
    // Rows of any bits, but with scales that are sane halves: blocks that no quantiser would make.
    std::vector<uint8_t> rows(TensorType type, uint32_t n_rows, uint32_t n_in) {
        const size_t bytes = row_bytes(type, n_in);
        std::vector<uint8_t> w(n_rows * bytes);
        for (uint32_t r = 0; r < n_rows; ++r) {
            const std::vector<float> x = floats(n_in, r % 3 == 0 ? 5.0f : 0.02f);
            quantize_row(type, x.data(), w.data() + r * bytes, n_in);
        }
        if (act_kind(type) == ActKind::f32) return w;
        const TensorTypeInfo& t = info(type);
        std::vector<uint8_t> scrambled = w;
        for (uint8_t& byte : scrambled) byte = static_cast<uint8_t>(rng());
        // Take the halves from the real quantisation.
        const auto [first, n] = halves_of(type);
        for (size_t i = 0; i < w.size(); i += 2 * t.block_bytes) {  // every other block
            const size_t at = i + first;
            std::memcpy(&scrambled[at], &w[at], n);
            std::memcpy(&w[i], &scrambled[i], t.block_bytes);
        }
        return w;
    }
};

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
INSTANTIATE_TEST_SUITE_P(Levels, LevelTest, ::testing::ValuesIn(levels_to_check()),
                         [](const auto& param) { return std::string(param.param->name); });

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// On the heap, aligned as the kernels' scratch memory is; exact size, so that a sanitizer sees
// more.
class AlignedBytes {
  public:
    explicit AlignedBytes(size_t n) : data_(new (std::align_val_t{64}) uint8_t[n]) {}
    ~AlignedBytes() { operator delete[](data_, std::align_val_t{64}); }
    AlignedBytes(const AlignedBytes&) = delete;
    AlignedBytes& operator=(const AlignedBytes&) = delete;
    uint8_t* get() const { return data_; }

  private:
    uint8_t* data_;
};

TEST_P(LevelTest, QuantisedMatrices) {
    AlignedBytes scratch(kPanelBytes);
    for (const TensorTypeInfo& type : tensor_types()) {
        const ActKind kind = act_kind(type.type);
        if (kind == ActKind::f32) continue;
        const size_t slot = static_cast<size_t>(type.type);
        for (const uint32_t n_in : {256u, 512u, 1280u, 32u, 96u, 416u}) {
            if (n_in % type.block_size) continue;
            for (const uint32_t n_rows : {1u, 3u, 8u, 13u, 33u}) {
                const std::vector<uint8_t> w = rows(type.type, n_rows, n_in);
                for (const uint32_t n_tok : {1u, 2u, 3u, 5u, 8u, 9u, 17u, 70u, 131u}) {
                    const std::vector<float> x = floats(size_t{n_tok} * n_in);
                    const size_t blocks = act_blocks(n_in);
                    std::vector<ActBlock> acts(n_tok * blocks);
                    for (uint32_t t = 0; t < n_tok; ++t) {
                        auto quantize =
                            kind == ActKind::q256 ? spec.quantize_q256 : spec.quantize_q32;
                        ASSERT_TRUE(quantize(&x[t * n_in], n_in, &acts[t * blocks]));
                    }
                    std::vector<float> want(n_tok * n_rows), got(n_tok * n_rows, -1.0f);
                    const size_t bytes = row_bytes(type.type, n_in);
                    for (uint32_t t = 0; t < n_tok; t += 8) {
                        const uint32_t n = std::min(8u, n_tok - t);
                        const MatArgs a{w.data(),          bytes, n_rows, n_in, n,
                                        &want[t * n_rows], n_rows};
                        spec.mat_small[slot](a, &acts[t * blocks]);
                        MatArgs b = a;
                        b.y = &got[t * n_rows];
                        level.mat_small[slot](b, &acts[t * blocks]);
                    }
                    ASSERT_TRUE(same_bits(want, got))
                        << type.name << " small " << n_in << "x" << n_rows << " tok " << n_tok;
                    const LargeBatch& large = level.large;
                    if (large.tile_tokens == 0) continue;
                    const uint32_t per_tile = large.tile_tokens;
                    const uint32_t n_tiles = (n_tok + per_tile - 1) / per_tile;
                    const size_t tile_row = blocks * large.tile_bytes;
                    AlignedBytes tiles(n_tiles * tile_row);
                    for (uint32_t t = 0; t < n_tiles; ++t)
                        large.pack(
                            &acts[t * per_tile * blocks], blocks, static_cast<uint32_t>(blocks),
                            std::min(per_tile, n_tok - t * per_tile), tiles.get() + t * tile_row);
                    std::fill(got.begin(), got.end(), -1.0f);
                    const MatArgs c{w.data(), bytes, n_rows, n_in, n_tok, got.data(), n_rows};
                    large.mat[slot](c, tiles.get(), scratch.get());
                    ASSERT_TRUE(same_bits(want, got))
                        << type.name << " large " << n_in << "x" << n_rows << " tok " << n_tok;
                }
            }
        }
    }
}

// The largest sums that a block can have: what is kept in 16 bits on the way must still fit.
TEST_P(LevelTest, ExtremeBlocks) {
    AlignedBytes scratch(kPanelBytes);
    constexpr uint32_t n_in = 512, n_rows = 7, n_tok = 4, n_blocks = n_in / kActBlock;
    const uint8_t fill[n_rows] = {0x00, 0xff, 0x80, 0x7f, 0x08, 0xaa, 0x55};
    for (const TensorTypeInfo& type : tensor_types()) {
        const ActKind kind = act_kind(type.type);
        if (kind == ActKind::f32) continue;
        const size_t slot = static_cast<size_t>(type.type), bytes = row_bytes(type.type, n_in);
        std::vector<uint8_t> w = rows(type.type, n_rows, n_in);
        const auto [first, n_halves] = halves_of(type.type);
        for (size_t i = 0; i < w.size(); ++i)
            if (i % type.block_bytes - first >= n_halves) w[i] = fill[i / bytes];
        std::vector<float> x(n_tok * n_in);
        for (uint32_t i = 0; i < x.size(); ++i) {
            const float signs[n_tok] = {1.0f, -1.0f, i % 2 ? 1.0f : -1.0f, i % 3 ? 1.0f : -1.0f};
            x[i] = signs[i / n_in];
        }
        std::vector<ActBlock> acts(n_tok * n_blocks);
        for (uint32_t t = 0; t < n_tok; ++t)
            (kind == ActKind::q256 ? spec.quantize_q256 : spec.quantize_q32)(&x[t * n_in], n_in,
                                                                             &acts[t * n_blocks]);
        std::vector<float> want(n_tok * n_rows), got(n_tok * n_rows, -1.0f);
        MatArgs a{w.data(), bytes, n_rows, n_in, n_tok, want.data(), n_rows};
        spec.mat_small[slot](a, acts.data());
        a.y = got.data();
        level.mat_small[slot](a, acts.data());
        EXPECT_TRUE(same_bits(want, got)) << type.name << " small";
        const LargeBatch& large = level.large;
        if (large.tile_tokens == 0) continue;
        AlignedBytes tiles(n_blocks * large.tile_bytes);
        large.pack(acts.data(), n_blocks, n_blocks, n_tok, tiles.get());
        std::fill(got.begin(), got.end(), -1.0f);
        large.mat[slot](a, tiles.get(), scratch.get());
        EXPECT_TRUE(same_bits(want, got)) << type.name << " large";
    }
}

TEST_P(LevelTest, FloatMatrices) {
    for (const TensorType type : {TensorType::f32, TensorType::f16, TensorType::bf16})
        for (const uint32_t n_in : {1u, 31u, 64u, 172u, 600u, 1025u})
            for (const uint32_t n_rows : {1u, 2u, 5u})
                for (const uint32_t n_tok : {1u, 2u, 3u, 4u, 9u}) {
                    const std::vector<uint8_t> w = rows(type, n_rows, n_in);
                    const std::vector<float> x = floats(size_t{n_tok} * n_in);
                    std::vector<float> want(n_tok * n_rows), got(n_tok * n_rows);
                    MatArgs a{w.data(), row_bytes(type, n_in), n_rows, n_in,
                              n_tok,    want.data(),           n_rows};
                    const size_t slot = static_cast<size_t>(type);
                    spec.mat_float[slot](a, x.data(), n_in);
                    a.y = got.data();
                    level.mat_float[slot](a, x.data(), n_in);
                    ASSERT_TRUE(same_bits(want, got)) << info(type).name << " " << n_in;
                }
}

TEST_P(LevelTest, ActivationQuantisation) {
    for (int round = 0; round < 200; ++round) {
        std::vector<float> x = floats(512, std::exp(static_cast<float>(round % 40 - 20)));
        if (round % 5 == 0) std::fill(x.begin(), x.begin() + 64, 0.0f);
        if (round % 7 == 0) x[100] = 1e-36f;
        if (round % 11 == 0)
            for (float& v : x) v = std::round(v * 4) / 4;  // ties
        if (round % 13 == 0) x[300] = round % 2 ? INFINITY : NAN;
        ActBlock want[2] = {}, got[2] = {};
        for (const uint32_t n : {512u, 288u}) {
            ASSERT_EQ(spec.quantize_q32(x.data(), n, want), level.quantize_q32(x.data(), n, got));
            ASSERT_EQ(std::memcmp(want, got, sizeof want), 0) << round;
        }
        ASSERT_EQ(spec.quantize_q256(x.data(), 512, want), level.quantize_q256(x.data(), 512, got));
        ASSERT_EQ(std::memcmp(want, got, sizeof want), 0) << round;
    }
}

TEST_P(LevelTest, Operators) {
    for (const uint32_t n : {1u, 7u, 8u, 31u, 64u, 172u, 2048u}) {
        const std::vector<float> x = floats(n, 30.0f), w = floats(n);
        std::vector<float> want(n), got(n);
        ASSERT_EQ(spec.rms_norm(x.data(), w.data(), n, 1e-5f, want.data()), true);
        ASSERT_EQ(level.rms_norm(x.data(), w.data(), n, 1e-5f, got.data()), true);
        ASSERT_TRUE(same_bits(want, got)) << "rms_norm " << n;
        want = got = x;
        spec.swiglu(want.data(), w.data(), n);
        level.swiglu(got.data(), w.data(), n);
        ASSERT_TRUE(same_bits(want, got)) << "swiglu " << n;
        spec.add(want.data(), w.data(), n);
        level.add(got.data(), w.data(), n);
        spec.scale(want.data(), 0.3f, n);
        level.scale(got.data(), 0.3f, n);
        ASSERT_TRUE(same_bits(want, got)) << "add, scale " << n;
        std::vector<uint16_t> half_want(n), half_got(n);
        spec.to_f16(x.data(), half_want.data(), n);
        level.to_f16(x.data(), half_got.data(), n);
        ASSERT_EQ(half_want, half_got);
        if (n % 2) continue;
        spec.rope_norm(want.data(), w.data(), x.data(), n);
        level.rope_norm(got.data(), w.data(), x.data(), n);
        ASSERT_TRUE(same_bits(want, got)) << "rope " << n;
    }
    std::vector<float> bad(64, 1.0f), out(64);
    bad[5] = 1e30f;
    EXPECT_FALSE(level.rms_norm(bad.data(), bad.data(), 64, 1e-5f, out.data()));
    EXPECT_FALSE(spec.rms_norm(bad.data(), bad.data(), 64, 1e-5f, out.data()));
}

// Queries with windows of every kind over two pages; slots that nobody may see hold NaN.
TEST_P(LevelTest, Attention) {
    struct Window {
        uint32_t first, end;
    };
    const Window windows[] = {{0, 64}, {0, 1},   {5, 6},  {0, 33},
                              {7, 64}, {63, 64}, {1, 63}, {40, 50}};
    for (const uint32_t n_k : {8u, 48u, 64u, 80u, 20u})
        for (const uint32_t n_v : {8u, 64u, 12u, 80u})
            for (uint32_t n_q = 1; n_q <= 11; ++n_q) {
                std::vector<uint16_t> k(size_t{2} * n_k * kPage), v(size_t{2} * kPage * n_v);
                const std::vector<float> kf = floats(k.size()), vf = floats(v.size());
                spec.to_f16(kf.data(), k.data(), static_cast<uint32_t>(k.size()));
                spec.to_f16(vf.data(), v.data(), static_cast<uint32_t>(v.size()));
                const std::vector<float> q = floats(size_t{n_q} * n_k);
                std::vector<float> o_want(size_t{n_q} * n_v), o_got(size_t{n_q} * n_v);
                std::vector<AttnQuery> want, got;
                for (uint32_t i = 0; i < n_q; ++i) {
                    want.push_back({&q[i * n_k], &o_want[i * n_v], -INFINITY, 0.0f, 0, 64});
                    got.push_back({&q[i * n_k], &o_got[i * n_v], -INFINITY, 0.0f, 0, 64});
                }
                for (uint32_t page = 0; page < 2; ++page) {
                    uint32_t last = 0;
                    for (uint32_t i = 0; i < n_q; ++i) {
                        const Window w = windows[(i * (page + 3) + n_q) % std::size(windows)];
                        want[i].first = got[i].first = w.first;
                        want[i].end = got[i].end = w.end;
                        last = std::max(last, w.end);
                    }
                    uint16_t* pk = &k[size_t{page} * n_k * kPage];
                    uint16_t* pv = &v[size_t{page} * kPage * n_v];
                    for (uint32_t j = last; j < kPage; ++j) {
                        for (uint32_t d = 0; d < n_k; ++d) pk[d * kPage + j] = 0x7e00;
                        for (uint32_t d = 0; d < n_v; ++d) pv[j * n_v + d] = 0x7e00;
                    }
                    spec.attn_page({pk, pv}, n_k, n_v, want.data(), n_q);
                    level.attn_page({pk, pv}, n_k, n_v, got.data(), n_q);
                }
                ASSERT_TRUE(same_bits(o_want, o_got)) << n_k << " " << n_v << " " << n_q;
                for (uint32_t i = 0; i < n_q; ++i) {
                    ASSERT_EQ(want[i].m, got[i].m);
                    ASSERT_EQ(want[i].l, got[i].l);
                    for (uint32_t d = 0; d < n_v; ++d)
                        ASSERT_TRUE(std::isfinite(o_got[i * n_v + d]));
                }
            }
}

// The specification against plain arithmetic in double: the right thing, not just the same thing.
TEST(SpecificationTest, MatricesAreDotProducts) {
    const Kernels& spec = *find_kernels("generic");
    std::mt19937 rng(3);
    std::normal_distribution<float> normal;
    for (const TensorTypeInfo& type : tensor_types()) {
        const uint32_t n = 512;
        std::vector<float> w(n), x(n), back(n);
        for (float& v : w) v = normal(rng);
        for (float& v : x) v = normal(rng);
        std::vector<uint8_t> row(row_bytes(type.type, n));
        quantize_row(type.type, w.data(), row.data(), n);
        dequantize_row(type.type, row.data(), back.data(), n);
        float y = 0;
        const MatArgs a{row.data(), row.size(), 1, n, 1, &y, 1};
        const size_t slot = static_cast<size_t>(type.type);
        std::vector<ActBlock> act(2);
        if (act_kind(type.type) == ActKind::f32) {
            spec.mat_float[slot](a, x.data(), n);
        } else {
            (act_kind(type.type) == ActKind::q256 ? spec.quantize_q256 : spec.quantize_q32)(
                x.data(), n, act.data());
            for (uint32_t i = 0; i < n; ++i)
                x[i] = static_cast<float>(act[i / 256].q[i % 256]) * act[i / 256].d[i % 256 / 32];
            spec.mat_small[slot](a, act.data());
        }
        double want = 0, size = 0;
        for (uint32_t i = 0; i < n; ++i) {
            want += double{back[i]} * x[i];
            size += std::fabs(double{back[i]} * x[i]);
        }
        EXPECT_NEAR(y, want, 3e-6 * size) << type.name;
    }
}

TEST(SpecificationTest, AttentionIsSoftmax) {
    const Kernels& spec = *find_kernels("generic");
    std::mt19937 rng(4);
    std::normal_distribution<float> normal;
    constexpr uint32_t n = 16;
    std::vector<uint16_t> k(n * kPage), v(kPage * n);
    for (uint16_t& h : k) h = f32_to_f16(normal(rng));
    for (uint16_t& h : v) h = f32_to_f16(normal(rng));
    std::vector<float> q(n), o(n);
    for (float& value : q) value = normal(rng);
    AttnQuery query{q.data(), o.data(), -INFINITY, 0.0f, 3, 50};
    spec.attn_page({k.data(), v.data()}, n, n, &query, 1);
    double sum = 0, want[n] = {};
    for (uint32_t j = 3; j < 50; ++j) {
        double s = 0;
        for (uint32_t d = 0; d < n; ++d) s += double{q[d]} * f16_to_f32(k[d * kPage + j]);
        sum += std::exp(s);
        for (uint32_t d = 0; d < n; ++d) want[d] += std::exp(s) * f16_to_f32(v[j * n + d]);
    }
    for (uint32_t d = 0; d < n; ++d) EXPECT_NEAR(o[d] / query.l, want[d] / sum, 1e-5);
}

TEST(KernelsTest, LevelNames) {
    EXPECT_EQ(usable_levels().back(), "generic");
    EXPECT_EQ(find_kernels("no-such-level"), nullptr);
    for (const std::string_view name : usable_levels()) {
        const Kernels* k = find_kernels(name);
        ASSERT_NE(k, nullptr);
        EXPECT_EQ(k->name, name);
        for (const TensorTypeInfo& type : tensor_types()) {
            const size_t slot = static_cast<size_t>(type.type);
            const bool is_float = act_kind(type.type) == ActKind::f32;
            EXPECT_EQ(k->mat_float[slot] != nullptr, is_float) << type.name;
            EXPECT_EQ(k->mat_small[slot] != nullptr, !is_float) << type.name;
            EXPECT_EQ(k->large.mat[slot] != nullptr, k->large.tile_tokens > 0 && !is_float)
                << type.name;
        }
        EXPECT_LE(k->large.tile_tokens, kMaxTileTokens);
        EXPECT_LE(k->large.tile_bytes, k->large.tile_tokens * sizeof(ActBlock));
        EXPECT_EQ(k->large.tile_bytes % 64, 0u);
    }
}

std::vector<const void*> entries(const Kernels& k) {
    std::vector<const void*> all;
    const auto add = [&](auto function) { all.push_back(reinterpret_cast<const void*>(function)); };
    for (const MatSmall each : k.mat_small) add(each);
    for (const MatFloat each : k.mat_float) add(each);
    for (const MatLarge each : k.large.mat) add(each);
    add(k.large.pack);
    add(k.quantize_q256);
    add(k.quantize_q32);
    add(k.rms_norm);
    add(k.add);
    add(k.scale);
    add(k.swiglu);
    add(k.rope_norm);
    add(k.to_f16);
    add(k.quantize_kv);
    add(k.attn_page);
    return all;
}

// A CPU that has one branch of the tree need not have another: a table holds its own entries and
// those of its ancestors, nothing else.
TEST(KernelsTest, EntriesComeFromAncestors) {
    std::map<std::string_view, LevelInfo> tree;
    for (const LevelInfo& level : all_levels()) tree[level.name] = level;
    const auto is_ancestor = [&](std::string_view ancestor, std::string_view name) {
        for (; !name.empty(); name = tree.at(name).parent)
            if (name == ancestor) return true;
        return false;
    };
    const std::vector<std::string_view> usable = usable_levels();
    for (const std::string_view mine : usable)
        for (const std::string_view other : usable) {
            if (is_ancestor(other, mine) || is_ancestor(mine, other)) continue;
            // What both have comes from the ancestor that they share.
            std::string_view shared = mine;
            while (!is_ancestor(shared, other)) shared = tree.at(shared).parent;
            const auto a = entries(*find_kernels(mine)), b = entries(*find_kernels(other));
            const auto from = entries(*find_kernels(shared));
            for (size_t i = 0; i < a.size(); ++i)
                EXPECT_TRUE(a[i] != b[i] || a[i] == from[i]) << mine << " " << other << " " << i;
        }
    for (const auto& [name, level] : tree)
        EXPECT_EQ(level.parent.empty(), name == "generic") << name;
}

}  // namespace
}  // namespace picolm
