#include "decode/random.h"

namespace picolm {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
        const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
        counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
                   static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    return counter;
}

uint64_t random_bits(uint64_t seed, uint64_t position, uint32_t attempt) {
    const auto words = philox4x32(
        {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), attempt, 0},
        {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    return words[0] | uint64_t{words[1]} << 32;
}

uint64_t scale_to(uint64_t bits, uint64_t n) {
    const uint64_t bits_low = bits & 0xFFFFFFFFu, bits_high = bits >> 32;
    const uint64_t n_low = n & 0xFFFFFFFFu, n_high = n >> 32;
    const uint64_t cross = bits_high * n_low + (bits_low * n_low >> 32);
    return bits_high * n_high + (cross >> 32) + (((cross & 0xFFFFFFFFu) + bits_low * n_high) >> 32);
}

}  // namespace picolm
