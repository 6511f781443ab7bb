// Between float rows and block formats. dequantize_row is the specification of every format:
// golden rows prove it, and every kernel computes with the same numbers.
#pragma once

#include <cstddef>

#include "base/tensor_type.h"

namespace picolm {

// x[0..n) from the row at `row`. REQUIRES: n % block_size(type) == 0. Any bytes are
// valid input, at any address; a scale that is NaN or infinite gives values that are.
void dequantize_row(TensorType type, const void* row, float* x, size_t n);

// The reverse, rounding to nearest: good enough to make test models and shipped small ones (least
// squares over a few roundings), not a tuned quantiser. The same floats give the same bytes on
// every machine. What a format cannot hold saturates: a scale, a half or a bfloat16 never becomes
// infinite. REQUIRES: n % block_size(type) == 0; x is finite (the bytes of a block that holds
// anything else mean nothing).
void quantize_row(TensorType type, const float* x, void* row, size_t n);

}  // namespace picolm
