// The tables of the levels, one per ISA file. Private to src/kernels.
#pragma once

#include "kernels/kernels.h"

namespace picolm {

// Fills in every entry.
void fill_generic(Kernels& table);
#if defined(__x86_64__)
// Overrides what AVX2 + F16C do better. Must only be called where the CPU has both.
void fill_avx2(Kernels& table);
void fill_avx2_operators(Kernels& table);  // the part without quantised weights
// AVX-512 F, BW, VL, DQ and VNNI.
void fill_avx512(Kernels& table);
void fill_avx512_operators(Kernels& table);
// AMX-TILE and AMX-INT8 on top: large batches.
void fill_amx(Kernels& table);
#endif

}  // namespace picolm
