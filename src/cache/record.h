// The unit of the prompt cache: one record of a KVC file (docs/KVC.md). Owns its bytes, its keys
// and its checks; knows nothing of files, tokens or models.
//
//   offset  size  field (little-endian)
//        0     4  magic 0x4B564350
//        4     4  version 0x80000001
//        8     4  kind
//       12     4  n             number of units, 0..64
//       16    16  identity      hash128 of the identity string
//       32    16  parent        K_first
//       48    16  own           K_(first + n)
//       64     4  first         position of the first unit
//       68     4  zero
//       72     8  payload_size  bytes
//       80     8  data checksum    XXH3-64 of the payload
//       88     8  header checksum  XXH3-64 of all other bytes before the payload
//       96   4*n  units
//            pad  zeros up to a multiple of 64; then the payload; then zeros up to a multiple of 64
//
// Records start at file offsets that are multiples of 64, so payloads do as well, whatever the page
// size of the system. The magic is that of the program before this one, whose second word was a
// position count: the top bit of the version can be none, and either program refuses the other's
// file.
//
// Keys: K_0 = identity hash, K_(i+1) = hash128(K_i, unit_i as 4 bytes). K_i stands for the first i
// units under that identity, whatever records hold them. A key finds candidates; units decide.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/hash.h"

namespace picolm::cache {

inline constexpr uint32_t kMagic = 0x4B564350;
inline constexpr uint32_t kVersion = 0x80000001;
inline constexpr uint32_t kPage = 64;       // positions per page; a record lies inside one page
inline constexpr uint32_t kAlignment = 64;  // of records and payloads in the file
inline constexpr uint32_t kFixedHead = 96;  // bytes before the units
inline constexpr uint32_t kMaxHead = 384;   // kFixedHead + 4 * kPage, aligned
inline constexpr uint32_t kMaxIdentity = 16 << 10;

enum class RecordKind : uint32_t {
    identity = 1,  // payload: the identity string; first = n = 0, parent = own = K_0
    pages = 2,     // payload: attention state of positions [first, first + n) of one page, n > 0
    hidden = 3,  // payload: final hidden state behind `first` units; n = 0, parent = own = K_first
};

constexpr uint64_t align_up(uint64_t n) {
    return (n + kAlignment - 1) / kAlignment * kAlignment;
}

struct RecordHeader {
    RecordKind kind = RecordKind::pages;
    Key128 identity;
    Key128 parent;
    Key128 own;
    uint32_t first = 0;
    uint32_t n = 0;
    uint64_t payload_size = 0;
    uint64_t data_checksum = 0;
    std::array<uint32_t, kPage> units{};  // [n]

    uint32_t end() const { return first + n; }
    uint64_t head_size() const { return align_up(kFixedHead + uint64_t{4} * n); }
    uint64_t total_size() const { return head_size() + align_up(payload_size); }
};

// The header at the start of `bytes`, which may be shorter or longer than the record. Everything
// but the payload is checked: magic, version, ranges, padding, checksum, and that own follows from
// parent and units. nullopt when anything is odd.
std::optional<RecordHeader> parse_header(Bytes bytes);

// The head_size() bytes before the payload.
std::vector<uint8_t> encode_header(const RecordHeader& header);

// Keys.
Key128 identity_key(std::string_view identity);
Key128 next_key(const Key128& key, uint32_t unit);
// K_0 .. K_n of n units.
std::vector<Key128> chain_keys(const Key128& root, std::span<const uint32_t> units);

// What the first bytes of a file say.
enum class HeadKind {
    ours,      // magic and version of this program
    newer,     // magic, and a version with the top bit set that this program does not know
    original,  // the format of the original PicoLM: magic, positions, layers, kv dim, f16 data
    foreign,
};
HeadKind classify_head(Bytes bytes);

// Identity strings read "key=value;key=value". The keys whose values differ, for people:
// "rope: 10000 there, 500000 here". At most three are named.
std::string describe_difference(std::string_view there, std::string_view here);

}  // namespace picolm::cache
