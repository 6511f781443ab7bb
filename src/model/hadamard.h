// The Hadamard transform: spreads what stands out in one element over all of them, so that a block
// can be quantised in finer steps. Applied to queries and keys alike it leaves their products as
// they were, but for the factor hadamard_size(n).
#pragma once

#include <cstdint>

namespace picolm {

// The largest power of two that divides n: the elements that are transformed together.
constexpr uint32_t hadamard_size(uint32_t n) {
    return n & (0 - n);
}

// x [n], in place: y[i] = sum over j of (-1)^popcount(i & j) x[j] within each group, by additions
// of pairs that are 1, 2, 4, .. apart, in this order.
void hadamard(float* x, uint32_t n);

}  // namespace picolm
