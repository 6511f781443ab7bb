// AVX-VNNI: the quantised matrices of AVX2 with multiply-and-add in one instruction.
#include <immintrin.h>

#include <cstddef>
#include <cstring>

#include "base/math.h"
#include "kernels/blocks.h"
#include "kernels/half.h"
#include "kernels/levels.h"

namespace picolm {
namespace {

#define PICOLM_AVXVNNI
#include "kernels/avx2_common.inc"
#include "kernels/avx2_formats.inc"
#include "kernels/avx2_large.inc"
#include "kernels/avx2_small.inc"

}  // namespace

void fill_avxvnni(Kernels& table) {
    fill_small(table.mat_small);
    fill_large(table.large);
}

}  // namespace picolm
