// Between float rows and block formats. dequantize_row is the specification of every format:
// golden rows prove it, and every kernel computes with the same numbers.
#pragma once

#include <cstddef>

#include "base/tensor_type.h"

namespace picolm {

// x[0..n) from the row at `row`. REQUIRES: n % block_size(type) == 0. Any bytes are valid input.
void dequantize_row(TensorType type, const void* row, float* x, size_t n);

// The reverse, rounding to nearest: good enough to make test models and shipped small ones (a
// search for the best scale where it is cheap), not a tuned quantiser. REQUIRES: x is finite.
void quantize_row(TensorType type, const float* x, void* row, size_t n);

}  // namespace picolm
