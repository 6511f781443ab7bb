// avx512.cpp of src/kernels, compiled for any x86-64 CPU: see immintrin.h beside this file.
#define fill_avx512 emulated_fill_avx512
#define fill_avx512_operators emulated_fill_avx512_operators
#include "../../../src/kernels/avx512.cpp"
