// Sticky bounds-checked reader over little-endian bytes. The first read past the end fails, and so
// does every later one: parse a group of fields, then ask ok() once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace picolm {

using Bytes = std::span<const uint8_t>;

class ByteReader {
  public:
    explicit ByteReader(Bytes bytes) : bytes_(bytes) {}

    bool ok() const { return ok_; }
    size_t position() const { return position_; }
    size_t remaining() const { return ok_ ? bytes_.size() - position_ : 0; }

    // A failed read gives 0 (or an empty view) and leaves the position where it was.
    uint8_t u8() { return static_cast<uint8_t>(little_endian(1)); }
    uint16_t u16() { return static_cast<uint16_t>(little_endian(2)); }
    uint32_t u32() { return static_cast<uint32_t>(little_endian(4)); }
    uint64_t u64() { return little_endian(8); }
    float f32() {
        const uint32_t bits = u32();
        float value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }
    double f64() {
        const uint64_t bits = u64();
        double value;
        std::memcpy(&value, &bits, sizeof value);
        return value;
    }

    // The next n bytes, in place. n may come straight from the file.
    Bytes take(uint64_t n) {
        if (!ok_ || n > bytes_.size() - position_) {
            ok_ = false;
            return {};
        }
        const Bytes part = bytes_.subspan(position_, static_cast<size_t>(n));
        position_ += static_cast<size_t>(n);
        return part;
    }
    // count items of item_size bytes each; the product is never formed before it is known to fit.
    Bytes take_array(uint64_t count, size_t item_size) {
        if (!ok_ || item_size == 0 || count > (bytes_.size() - position_) / item_size) {
            ok_ = false;
            return {};
        }
        return take(count * item_size);
    }
    std::string_view text(uint64_t n) {
        const Bytes part = take(n);
        return {reinterpret_cast<const char*>(part.data()), part.size()};
    }
    void fail() { ok_ = false; }

  private:
    uint64_t little_endian(size_t n) {
        const Bytes part = take(n);
        uint64_t value = 0;
        for (size_t i = 0; i < part.size(); ++i) value |= uint64_t{part[i]} << (8 * i);
        return value;
    }

    Bytes bytes_;
    size_t position_ = 0;
    bool ok_ = true;
};

}  // namespace picolm
