// The texts of a vocabulary, in place: four bytes per token beside the mapped file. Knows the
// layout of a GGUF string array (u64 length, then the characters), nothing of what texts mean.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace picolm {

class TokenTexts {
  public:
    // Far above any vocabulary known, and what the lookup tables have bits for.
    static constexpr uint32_t kMaxTokens = (1u << 24) - 1;

    // `array` is the elements of a GGUF string array as stored; it must outlive this object.
    static Result<TokenTexts> parse(Bytes array, uint64_t count);

    uint32_t size() const { return static_cast<uint32_t>(offsets_.size()); }
    // REQUIRES: id < size().
    std::string_view operator[](uint32_t id) const;

  private:
    Bytes array_;
    std::vector<uint32_t> offsets_;  // [size()] where each element's length field is
};

}  // namespace picolm
