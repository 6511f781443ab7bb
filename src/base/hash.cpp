#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/format.h"

namespace picolm {

std::string Key128::hex() const {
    return format("%016llx%016llx", static_cast<unsigned long long>(high),
                  static_cast<unsigned long long>(low));
}

uint64_t hash64(Bytes bytes) {
    return XXH3_64bits(bytes.data(), bytes.size());
}

Key128 hash128(Bytes bytes) {
    const XXH128_hash_t h = XXH3_128bits(bytes.data(), bytes.size());
    return {h.low64, h.high64};
}

Hasher::Hasher() : state_(XXH3_createState()) {
    XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_));
}

Hasher::~Hasher() {
    XXH3_freeState(static_cast<XXH3_state_t*>(state_));
}

void Hasher::update(Bytes bytes) {
    XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), bytes.data(), bytes.size());
}

uint64_t Hasher::digest64() const {
    return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state_));
}

Key128 Hasher::digest128() const {
    const XXH128_hash_t h = XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_));
    return {h.low64, h.high64};
}

}  // namespace picolm
