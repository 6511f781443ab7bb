// AVX2 + F16C, small batches of quantised weights. Everything is in an anonymous namespace: nothing
// compiled here with AVX2 flags may be shared with other files.
#include <immintrin.h>

#include <cstddef>
#include <cstring>

#include "base/math.h"
#include "kernels/blocks.h"
#include "kernels/half.h"
#include "kernels/levels.h"

namespace picolm {
namespace {

#include "kernels/avx2_common.inc"
#include "kernels/avx2_formats.inc"
#include "kernels/avx2_small.inc"

}  // namespace

void fill_avx2(Kernels& table) {
    fill_avx2_operators(table);
    fill_avx2_large(table.large);
    fill_small(table.mat_small);
}

}  // namespace picolm
