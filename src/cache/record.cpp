#include "cache/record.h"

#include <algorithm>
#include <cstring>

#include "base/format.h"

namespace picolm::cache {
namespace {

constexpr size_t kChecksumOffset = 88;
// No file is larger; sizes below it can be rounded and added without overflow.
constexpr uint64_t kMaxPayload = uint64_t{1} << 62;

void put(uint8_t* out, uint64_t value, size_t n) {
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<uint8_t>(value >> (8 * i));
}

void put(uint8_t* out, const Key128& key) {
    put(out, key.low, 8);
    put(out + 8, key.high, 8);
}

Key128 read_key(ByteReader& in) {
    const uint64_t low = in.u64();
    return {low, in.u64()};
}

// XXH3-64 of a header whose checksum field counts as zero. REQUIRES: head.size() <= kMaxHead.
uint64_t header_checksum(Bytes head) {
    uint8_t copy[kMaxHead];
    std::memcpy(copy, head.data(), head.size());
    std::memset(copy + kChecksumOffset, 0, 8);
    return hash64({copy, head.size()});
}

bool consistent(const RecordHeader& h) {
    if (h.payload_size == 0 || h.payload_size > kMaxPayload) return false;
    const bool whole_prefix = h.n == 0 && h.parent == h.own;
    switch (h.kind) {
        case RecordKind::identity:
            return whole_prefix && h.first == 0 && h.own == h.identity &&
                   h.payload_size <= kMaxIdentity;
        case RecordKind::hidden:
            return whole_prefix && h.first > 0;
        case RecordKind::pages: {
            if (h.n == 0 || h.first > UINT32_MAX - h.n) return false;
            if (h.first / kPage != (h.end() - 1) / kPage) return false;
            if (h.first == 0 && h.parent != h.identity) return false;
            Key128 key = h.parent;
            for (uint32_t i = 0; i < h.n; ++i) key = next_key(key, h.units[i]);
            return key == h.own;
        }
    }
    return false;
}

}  // namespace

std::optional<RecordHeader> parse_header(Bytes bytes) {
    ByteReader in(bytes);
    if (in.u32() != kMagic || in.u32() != kVersion) return std::nullopt;
    RecordHeader h;
    h.kind = static_cast<RecordKind>(in.u32());
    h.n = in.u32();
    h.identity = read_key(in);
    h.parent = read_key(in);
    h.own = read_key(in);
    h.first = in.u32();
    const uint32_t zero = in.u32();
    h.payload_size = in.u64();
    h.data_checksum = in.u64();
    const uint64_t checksum = in.u64();
    if (!in.ok() || h.n > kPage || zero != 0) return std::nullopt;
    for (uint32_t i = 0; i < h.n; ++i) h.units[i] = in.u32();
    if (!in.ok() || h.head_size() > bytes.size()) return std::nullopt;
    if (checksum != header_checksum(bytes.first(static_cast<size_t>(h.head_size())))) {
        return std::nullopt;
    }
    if (!consistent(h)) return std::nullopt;
    return h;
}

std::vector<uint8_t> encode_header(const RecordHeader& h) {
    std::vector<uint8_t> out(static_cast<size_t>(h.head_size()));
    uint8_t* p = out.data();
    put(p, kMagic, 4);
    put(p + 4, kVersion, 4);
    put(p + 8, static_cast<uint32_t>(h.kind), 4);
    put(p + 12, h.n, 4);
    put(p + 16, h.identity);
    put(p + 32, h.parent);
    put(p + 48, h.own);
    put(p + 64, h.first, 4);
    put(p + 72, h.payload_size, 8);
    put(p + 80, h.data_checksum, 8);
    for (uint32_t i = 0; i < h.n; ++i) put(p + kFixedHead + 4 * size_t{i}, h.units[i], 4);
    put(p + kChecksumOffset, header_checksum(out), 8);
    return out;
}

Key128 identity_key(std::string_view identity) {
    return hash128({reinterpret_cast<const uint8_t*>(identity.data()), identity.size()});
}

Key128 next_key(const Key128& key, uint32_t unit) {
    uint8_t bytes[20];
    put(bytes, key);
    put(bytes + 16, unit, 4);
    return hash128(bytes);
}

std::vector<Key128> chain_keys(const Key128& root, std::span<const uint32_t> units) {
    std::vector<Key128> keys;
    keys.reserve(units.size() + 1);
    keys.push_back(root);
    for (const uint32_t unit : units) keys.push_back(next_key(keys.back(), unit));
    return keys;
}

HeadKind classify_head(Bytes bytes) {
    ByteReader in(bytes);
    const uint32_t magic = in.u32();
    const uint32_t second = in.u32();
    if (!in.ok() || magic != kMagic) return HeadKind::foreign;
    if (second == kVersion) return HeadKind::ours;
    return second & 0x80000000 ? HeadKind::newer : HeadKind::original;
}

namespace {

// The text up to the separator, which is dropped from `rest` with it.
std::string_view cut(std::string_view& rest, char separator) {
    const size_t at = std::min(rest.find(separator), rest.size());
    const std::string_view part = rest.substr(0, at);
    rest.remove_prefix(std::min(at + 1, rest.size()));
    return part;
}

// The value of a key, or nullopt.
std::optional<std::string_view> value_of(std::string_view identity, std::string_view key) {
    while (!identity.empty()) {
        std::string_view field = cut(identity, ';');
        if (cut(field, '=') == key) return field;
    }
    return std::nullopt;
}

std::string shown(std::optional<std::string_view> value) {
    return value ? printable(*value, 60) : "nothing";
}

}  // namespace

std::string describe_difference(std::string_view there, std::string_view here) {
    std::string text;
    int named = 0;
    const auto compare = [&](std::string_view fields, bool only_missing) {
        while (!fields.empty()) {
            std::string_view field = cut(fields, ';');
            const std::string_view key = cut(field, '=');
            const auto old_value = value_of(there, key);
            const auto new_value = value_of(here, key);
            if (key.empty() || old_value == new_value || (only_missing && new_value)) continue;
            if (++named > 3) continue;
            text += format("%s%s: %s there, %s here", text.empty() ? "" : "; ",
                           printable(key, 40).c_str(), shown(old_value).c_str(),
                           shown(new_value).c_str());
        }
    };
    compare(here, false);
    compare(there, true);
    if (named > 3) text += "; ...";
    return text;
}

}  // namespace picolm::cache
