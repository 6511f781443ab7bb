// Hand-made GGUF bytes: every field as a test wants it, right or wrong.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace picolm::testing {

class RawGguf {
  public:
    RawGguf(uint64_t n_tensors, uint64_t n_entries, uint32_t version = 3) {
        bytes("GGUF").u32(version).u64(n_tensors).u64(n_entries);
    }
    RawGguf& u8(uint8_t value) { return number(value, 1); }
    RawGguf& u32(uint32_t value) { return number(value, 4); }
    RawGguf& u64(uint64_t value) { return number(value, 8); }
    RawGguf& bytes(std::string_view text) {
        for (const char c : text) data_.push_back(static_cast<uint8_t>(c));
        return *this;
    }
    RawGguf& text(std::string_view value) { return u64(value.size()).bytes(value); }
    RawGguf& key(std::string_view name, uint32_t type) { return text(name).u32(type); }
    RawGguf& tensor(std::string_view name, std::initializer_list<uint64_t> dims, uint32_t type,
                    uint64_t offset) {
        text(name).u32(static_cast<uint32_t>(dims.size()));
        for (const uint64_t dim : dims) u64(dim);
        return u32(type).u64(offset);
    }
    RawGguf& zeros(size_t n) {
        data_.resize(data_.size() + n);
        return *this;
    }
    RawGguf& align(size_t alignment = 32) {
        return zeros((alignment - data_.size() % alignment) % alignment);
    }
    Bytes view() const { return data_; }

  private:
    RawGguf& number(uint64_t value, int n_bytes) {
        for (int i = 0; i < n_bytes; ++i) data_.push_back(static_cast<uint8_t>(value >> (8 * i)));
        return *this;
    }
    std::vector<uint8_t> data_;
};

}  // namespace picolm::testing
