// KV pages: sharing, and the payload of records, for every pair of storage types.
#include "model/kv.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "kernels/half.h"
#include "model/hadamard.h"

namespace picolm {
namespace {

struct Case {
    KvTypes types;
    uint32_t n_k, n_v;
};

std::vector<Case> cases() {
    std::vector<Case> all;
    for (const KvType k : {KvType::f16, KvType::q8_0, KvType::q4_0})
        for (const KvType v : {KvType::f16, KvType::q8_0, KvType::q4_0})
            for (const auto& [n_k, n_v] : {std::pair{64u, 64u}, {3u, 5u}, {80u, 33u}})
                all.push_back({{k, v}, n_k, n_v});
    return all;
}

class KvTest : public ::testing::TestWithParam<Case> {
  protected:
    static constexpr uint32_t kLayers = 2, kHeads = 2;
    const Kernels& kernels = *find_kernels("generic");
    KvGeometry g = geometry();

    static KvGeometry geometry() {
        ModelSpec spec;
        spec.n_layer = kLayers;
        spec.n_head_kv = kHeads;
        spec.n_embd_head_k = GetParam().n_k;
        spec.n_embd_head_v = GetParam().n_v;
        return KvGeometry(spec, GetParam().types);
    }
    // K or V of a position, layer and head; another `seed`, other values.
    static std::vector<float> values(uint32_t seed, uint32_t layer, uint32_t head,
                                     uint32_t position, uint32_t n) {
        std::mt19937 rng(seed * 100003 + position * 31 + layer * 7 + head);
        std::normal_distribution<float> normal;
        std::vector<float> x(n);
        for (float& v : x) v = normal(rng);
        return x;
    }
    void write(KvSequence& s, uint32_t position, uint32_t seed = 1) {
        for (uint32_t layer = 0; layer < kLayers; ++layer)
            for (uint32_t head = 0; head < kHeads; ++head)
                ASSERT_TRUE(s.write(kernels, layer, head, position, 1,
                                    values(seed, layer, head, position, g.n_embd_head_k).data(), 0,
                                    values(seed + 1, layer, head, position, g.n_embd_head_v).data(),
                                    0));
    }
    void fill(KvSequence& s, uint32_t end) {
        const uint32_t first = s.n_positions();
        ASSERT_TRUE(s.reserve(end));
        for (uint32_t p = first; p < end; ++p) write(s, p);
        s.commit(end);
    }
    static std::shared_ptr<std::vector<uint8_t>> exported(const KvSequence& s, uint32_t first,
                                                          uint32_t n) {
        auto bytes = std::make_shared<std::vector<uint8_t>>();
        s.export_positions(
            first, n, [&](Bytes part) { bytes->insert(bytes->end(), part.begin(), part.end()); });
        return bytes;
    }
};
INSTANTIATE_TEST_SUITE_P(Types, KvTest, ::testing::ValuesIn(cases()), [](const auto& param) {
    std::string name = kv_types_name(param.param.types);
    name[name.find(',')] = '_';
    return name + "_" + std::to_string(param.param.n_k) + "_" + std::to_string(param.param.n_v);
});

TEST_P(KvTest, BorrowedAndSharedPages) {
    KvSequence a(g);
    fill(a, 130);
    // A full page, then a part of a record, then the rest of it.
    const auto page0 = exported(a, 0, 64), part = exported(a, 70, 20), head = exported(a, 64, 6);
    ASSERT_EQ(page0->size(), g.page_bytes());
    KvSequence b(g);
    ASSERT_TRUE(b.append_saved(0, 64, 0, 64, *page0, page0));
    EXPECT_EQ(b.attn_page(0, 0, 0).k, page0->data());  // where it lies
    ASSERT_TRUE(b.append_saved(64, 6, 64, 6, *head, head));
    ASSERT_TRUE(b.append_saved(70, 20, 70, 11, *part, part));
    ASSERT_TRUE(b.append_saved(70, 20, 81, 9, *part, part));
    ASSERT_EQ(b.n_positions(), 90u);
    EXPECT_EQ(*exported(b, 0, 64), *exported(a, 0, 64));
    EXPECT_EQ(*exported(b, 64, 26), *exported(a, 64, 26));
    // Going on inside a borrowed page makes a copy of it.
    const std::vector<uint8_t> before = *page0;
    b.truncate(50);
    ASSERT_TRUE(b.reserve(51));
    write(b, 50, 99);
    b.commit(51);
    EXPECT_EQ(*page0, before);
    EXPECT_EQ(*exported(b, 0, 50), *exported(a, 0, 50));
    EXPECT_NE(*exported(b, 50, 1), *exported(a, 50, 1));
}

TEST_P(KvTest, PartsOfPagesGoThroughRecords) {
    KvSequence a(g);
    fill(a, 128);
    std::mt19937 rng(3);
    const auto pick = [&](uint32_t n) { return static_cast<uint32_t>(rng() % n); };
    for (int round = 0; round < 30; ++round) {
        KvSequence b(g);
        for (uint32_t at = 0; at < 128;) {
            // A record that begins at or before `at` and ends behind it, of which a part is used.
            const uint32_t page = at / kPage * kPage, left = page + kPage - at;
            const uint32_t first = page + pick(at - page + 1);
            const uint32_t used = 1 + pick(left);
            const uint32_t n = at + used + pick(left - used + 1) - first;
            const auto payload = exported(a, first, n);
            ASSERT_EQ(payload->size(), n * g.position_bytes());
            ASSERT_TRUE(b.append_saved(first, n, at, used, *payload, payload));
            at += used;
        }
        ASSERT_EQ(*exported(b, 0, 64), *exported(a, 0, 64));
        ASSERT_EQ(*exported(b, 64, 64), *exported(a, 64, 64));
    }
}

TEST_P(KvTest, WritingAPositionLeavesTheOthers) {
    KvSequence a(g), b(g);
    fill(a, 64);
    fill(b, 64);
    for (const uint32_t p : {0u, 17u, 18u, 63u}) {
        write(b, p, 50);
        ASSERT_NE(*exported(b, p, 1), *exported(a, p, 1));
        write(b, p);
        ASSERT_EQ(*exported(b, 0, 64), *exported(a, 0, 64));
    }
}

// The layout, byte by byte as docs/KVC.md describes it, against the values that were written.
TEST_P(KvTest, PayloadIsAsDescribed) {
    KvSequence s(g);
    fill(s, 64);
    constexpr uint32_t kFirst = 13, kN = 22;
    const std::vector<uint8_t> payload = *exported(s, kFirst, kN);
    size_t at = 0;
    const auto half = [&](size_t index) {
        uint16_t value;
        std::memcpy(&value, &payload[at + 2 * index], sizeof value);
        return f16_to_f32(value);
    };
    for (uint32_t layer = 0; layer < kLayers; ++layer)
        for (const bool is_v : {false, true}) {
            const uint32_t size = is_v ? g.n_embd_head_v : g.n_embd_head_k;
            const KvType type = is_v ? g.types.v : g.types.k;
            for (uint32_t head = 0; head < kHeads; ++head) {
                std::vector<std::vector<float>> got(kN, std::vector<float>(size, 1.0f));
                for (uint32_t b = 0; type != KvType::f16 && b < (size + 31) / 32; ++b)
                    for (uint32_t j = 0; j < kN; ++j)
                        for (uint32_t d = 32 * b; d < std::min(size, 32 * b + 32); ++d)
                            got[j][d] = half(size_t{b} * kN + j);
                at += kv_blocks(type, size) * kN * 2;
                const uint32_t row = kv_data_bytes(type, size);
                for (uint32_t j = 0; j < kN; ++j)
                    for (uint32_t d = 0; d < size; ++d) {
                        const uint32_t r = type == KvType::q4_0 ? d / 2 : d;
                        const size_t index =
                            is_v ? (type == KvType::f16 ? size : row) * j + r : size_t{r} * kN + j;
                        if (type == KvType::f16) {
                            got[j][d] = half(index);
                            continue;
                        }
                        const uint8_t byte = payload[at + index];
                        const int q = type == KvType::q8_0 ? static_cast<int8_t>(byte)
                                      : d % 2 == 0         ? byte % 16 - 8
                                                           : byte / 16 - 8;
                        got[j][d] *= static_cast<float>(q);
                    }
                at += size_t{row} * kN;
                // Of the largest element of the block; half of the first key's error comes to that
                // of the key.
                const float close = type == KvType::q4_0   ? 0.2f
                                    : type == KvType::q8_0 ? 8e-3f
                                                           : 6e-4f;
                for (uint32_t j = 0; j < kN; ++j) {
                    std::vector<float> want = values(is_v ? 2 : 1, layer, head, kFirst + j, size);
                    if (!is_v && type != KvType::f16) {
                        std::vector<float> base = values(1, layer, head, 0, size);
                        hadamard(want.data(), size);
                        hadamard(base.data(), size);
                        for (uint32_t d = 0; d < size; ++d) want[d] -= 0.5f * base[d];
                    }
                    for (uint32_t d = 0; d < size; ++d) {
                        float most = 0;
                        for (uint32_t i = d / 32 * 32; i < std::min(size, d / 32 * 32 + 32); ++i)
                            most = std::max(most, std::fabs(want[i]));
                        ASSERT_NEAR(got[j][d], want[d], close * most) << j << " " << d;
                    }
                }
            }
        }
    EXPECT_EQ(at, payload.size());
}

TEST(KvWriteTest, WhatATypeCannotHoldIsRefused) {
    ModelSpec spec;
    spec.n_layer = spec.n_head_kv = 1;
    spec.n_embd_head_k = spec.n_embd_head_v = 32;
    const Kernels& kernels = *find_kernels("generic");
    const std::vector<float> good(32, 1.0f), bad(32, 1e9f);
    for (const KvType type : {KvType::q8_0, KvType::q4_0}) {
        KvSequence s(KvGeometry(spec, {type, type}));
        ASSERT_TRUE(s.reserve(1));
        EXPECT_TRUE(s.write(kernels, 0, 0, 0, 1, good.data(), 0, good.data(), 0));
        EXPECT_FALSE(s.write(kernels, 0, 0, 0, 1, bad.data(), 0, good.data(), 0));
        EXPECT_FALSE(s.write(kernels, 0, 0, 0, 1, good.data(), 0, bad.data(), 0));
    }
}

// Scores of keys in pages are their products with the query: exactly as far as the type can tell.
TEST_P(KvTest, KeysKeepTheirProductsWithQueries) {
    const uint32_t n = g.n_embd_head_k, n_positions = 100;
    std::vector<float> k;
    // What all keys have in common, most of it in one element, and something of their own.
    for (uint32_t p = 0; p < n_positions; ++p)
        for (uint32_t i = 0; i < n; ++i)
            k.push_back((i == n / 2 ? 20.0f : static_cast<float>(i % 3)) +
                        values(7, 0, 0, p, n)[i]);
    KvSequence s(g);
    ASSERT_TRUE(s.reserve(n_positions));
    const std::vector<float> v(n_positions * g.n_embd_head_v);
    for (uint32_t page = 0; page < n_positions; page += kPage)
        ASSERT_TRUE(s.write(kernels, 0, 0, page, std::min<uint32_t>(kPage, n_positions - page),
                            &k[page * n], n, v.data(), g.n_embd_head_v));
    const bool rotated = g.types.k != KvType::f16;
    std::vector<float> q = values(8, 0, 0, 0, n), turned = q;
    if (rotated) {
        hadamard(turned.data(), n);
        for (float& each : turned) each = each / static_cast<float>(hadamard_size(n));
    }
    std::vector<float> o(g.n_embd_head_v);
    double worst = 0, plain_worst = 0;
    for (uint32_t p = 0; p < n_positions; ++p) {
        double want = 0, amax = 0, norm = 0;
        for (uint32_t i = 0; i < n; ++i) {
            want += double{q[i]} * k[p * n + i];
            amax = std::max(amax, std::fabs(double{k[p * n + i]}));
            norm += double{q[i]} * q[i];
        }
        // m of a page with one visible slot is that slot's score.
        AttnQuery query{turned.data(), o.data(), -INFINITY, 0.0f, p % kPage, p % kPage + 1};
        kernels.attn_page(s.attn_page(p / kPage, 0, 0), n, g.n_embd_head_v, &query, 1);
        worst = std::max(worst, std::fabs(query.m - want));
        const double step = g.types.k == KvType::q8_0 ? amax / 127 : amax / 8;
        plain_worst = std::max(plain_worst, 3 * std::sqrt(norm / 12) * step);
    }
    // Three standard deviations of keys that are rounded as they are. Of three elements there is
    // nothing to rotate.
    EXPECT_LT(worst, !rotated ? 0.05 : n > 3 ? plain_worst / 2 : plain_worst);
}

// In one piece, one by one, and after a restart inside the page: the same bytes.
TEST_P(KvTest, PiecesDoNotMatter) {
    KvSequence a(g), b(g);
    fill(a, 100);
    ASSERT_TRUE(b.reserve(100));
    const uint32_t n_k = g.n_embd_head_k, n_v = g.n_embd_head_v;
    for (const auto& [first, n] : {std::pair{0u, 1u}, {1u, 40u}, {41u, 23u}, {64u, 36u}})
        for (uint32_t layer = 0; layer < kLayers; ++layer)
            for (uint32_t head = 0; head < kHeads; ++head) {
                std::vector<float> k, v;
                for (uint32_t p = first; p < first + n; ++p) {
                    const std::vector<float> one_k = values(1, layer, head, p, n_k),
                                             one_v = values(2, layer, head, p, n_v);
                    k.insert(k.end(), one_k.begin(), one_k.end());
                    v.insert(v.end(), one_v.begin(), one_v.end());
                }
                ASSERT_TRUE(b.write(kernels, layer, head, first, n, k.data(), n_k, v.data(), n_v));
            }
    b.commit(100);
    EXPECT_EQ(*exported(a, 0, 64), *exported(b, 0, 64));
    EXPECT_EQ(*exported(a, 64, 36), *exported(b, 64, 36));
}

TEST(Hadamard, IsItsDefinition) {
    for (const uint32_t n : {1u, 2u, 8u, 12u, 33u, 64u, 80u, 96u}) {
        const uint32_t size = hadamard_size(n);
        EXPECT_EQ(n % size, 0u);
        std::vector<float> x(n), want(n, 0.0f);
        for (uint32_t i = 0; i < n; ++i) x[i] = static_cast<float>(i * i % 31) - 15;
        for (uint32_t i = 0; i < n; ++i)
            for (uint32_t j = 0; j < size; ++j) {
                const float sign = std::popcount(i % size & j) % 2 ? -1.0f : 1.0f;
                want[i] += sign * x[i / size * size + j];
            }
        hadamard(x.data(), n);
        EXPECT_EQ(x, want) << n;
    }
    EXPECT_EQ(hadamard_size(80), 16u);
}

}  // namespace
}  // namespace picolm
