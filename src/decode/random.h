// Random numbers as a function of where they are used, not of what was drawn before: restoring a
// session from a cache, or drawing one token again, needs no generator state. The function is
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace picolm {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// 64 random bits for the token at `position` of the stream `seed`; `attempt` gives another draw at
// the same place (a rejected candidate, for example).
uint64_t random_bits(uint64_t seed, uint64_t position, uint32_t attempt);

// Maps 64 random bits to [0, n): the high half of the product. REQUIRES n > 0.
uint64_t scale_to(uint64_t bits, uint64_t n);

}  // namespace picolm
