// The tables of the levels, one per ISA file. Private to src/kernels.
#pragma once

#include "kernels/kernels.h"

namespace picolm {

// Fills in every entry.
void fill_generic(Kernels& table);
#if defined(__x86_64__)
// Overrides what the SSE2 that every x86-64 CPU has does better.
void fill_sse2(Kernels& table);
void fill_sse2_operators(Kernels& table);  // the part without quantised weights
// Overrides what AVX2 + F16C do better. Must only be called where the CPU has both.
void fill_avx2(Kernels& table);
void fill_avx2_operators(Kernels& table);  // the part without quantised weights
void fill_avx2_large(LargeBatch& large);
void fill_avxvnni(Kernels& table);
// AVX-512 F, BW, VL, DQ and VNNI.
void fill_avx512(Kernels& table);
void fill_avx512_operators(Kernels& table);
// AMX-TILE and AMX-INT8 on top: large batches.
void fill_amx(Kernels& table);
#endif
#if defined(__aarch64__)
// Each must only be called where the CPU has the level.
void fill_neon(Kernels& table);
void fill_neon_operators(Kernels& table);  // the part without quantised weights
void fill_dotprod(Kernels& table);
void fill_i8mm(Kernels& table);
#endif

}  // namespace picolm
