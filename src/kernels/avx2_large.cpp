// AVX2 + F16C, large batches of quantised weights.
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
#include "kernels/avx2_large.inc"

}  // namespace

void fill_avx2_large(LargeBatch& large) {
    fill_large(large);
}

}  // namespace picolm
