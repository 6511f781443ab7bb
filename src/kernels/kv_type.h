// What keys and values are rounded to before they are used, and how a page holds them. f16 is half
// precision; the others have one f16 scale per 32 elements of a position (the last block of a head
// may be shorter) and integers: value = scale * q, which binary32 holds exactly.
//
// K or V of one KV head in a page of n positions (n = kPage in memory):
//   scales  f16 [n_blocks, n]            none for f16
//   K       [n_rows, n]                  transposed: positions are the lanes of q.k
//   V       [n, row]                     by position: elements are the lanes of p.v
// An element is a half, an int8, or half a byte: byte r of a q4_0 position holds element 2r in its
// low and 2r + 1 in its high four bits, as q + 8. No two positions share a byte.
//
// Quantised keys are rotated (model/hadamard.h), and in slots 1 to 63 of a page they are what is
// left when half of the key in slot 0, as stored, is taken away: what all keys of a page have in
// common would otherwise make the steps coarse. See docs/NUMERICS.md.
//
// Functions are static: ISA files include this header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace picolm {

inline constexpr int kPage = 64;  // positions per KV page
inline constexpr uint32_t kKvBlock = 32;

enum class KvType : uint8_t { f16, q8_0, q4_0 };

struct KvTypes {
    KvType k = KvType::f16;
    KvType v = KvType::f16;
    friend bool operator==(KvTypes, KvTypes) = default;
};

// Of one position with `size` elements:
static constexpr uint32_t kv_blocks(KvType type, uint32_t size) {
    return type == KvType::f16 ? 0 : (size + kKvBlock - 1) / kKvBlock;
}
static constexpr uint32_t kv_data_bytes(KvType type, uint32_t size) {  // without the scales
    return type == KvType::f16 ? 2 * size : type == KvType::q8_0 ? size : (size + 1) / 2;
}
static constexpr uint32_t kv_row_bytes(KvType type, uint32_t size) {
    return 2 * kv_blocks(type, size) + kv_data_bytes(type, size);
}

// K or V of a KV head in a page, taken apart.
struct KvParts {
    const uint16_t* scales;  // f16 [kv_blocks, kPage]
    const uint8_t* data;
};
static inline KvParts kv_parts(const void* at, KvType type, uint32_t size) {
    const auto* bytes = static_cast<const uint8_t*>(at);
    return {static_cast<const uint16_t*>(at), bytes + 2 * kv_blocks(type, size) * kPage};
}

// Element i of a quantised position whose bytes follow each other, without its scale.
static constexpr int kv_integer(KvType type, const uint8_t* data, uint32_t i) {
    if (type == KvType::q8_0) return static_cast<int8_t>(data[i]);
    return ((data[i / 2] >> (4 * (i % 2))) & 15) - 8;
}

// Scores of the slots of a page with quantised keys, from the products with what is stored.
static inline void add_base_score(float p[kPage]) {
    const float base = 0.5f * p[0];
    for (int j = 1; j < kPage; ++j) p[j] = p[j] + base;
}

// "q8_0,q4_0": K, then V.
std::string kv_types_name(KvTypes types);
// The same, or one name for both. nullopt: not of this form.
std::optional<KvTypes> parse_kv_types(std::string_view text);
// "f16, q8_0, q4_0"
std::string known_kv_types();

}  // namespace picolm
