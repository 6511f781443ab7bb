// XXH3, 64 and 128 bits (https://github.com/Cyan4973/xxHash). Not cryptographic: keys built from
// it find candidates, the stored units decide.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "base/bytes.h"

namespace picolm {

struct Key128 {
    uint64_t low = 0;
    uint64_t high = 0;
    friend auto operator<=>(const Key128&, const Key128&) = default;
    std::string hex() const;  // 32 lower-case digits, high half first
};

uint64_t hash64(Bytes bytes);
Key128 hash128(Bytes bytes);

// The same as one call over the concatenation of all pieces.
class Hasher {
  public:
    Hasher();
    ~Hasher();
    Hasher(const Hasher&) = delete;
    Hasher& operator=(const Hasher&) = delete;
    void update(Bytes bytes);
    uint64_t digest64() const;
    Key128 digest128() const;

  private:
    void* state_;
};

}  // namespace picolm
