// amx.cpp of src/kernels, compiled for any x86-64 CPU: see immintrin.h beside this file.
#define fill_amx emulated_fill_amx
#include "../../../src/kernels/amx.cpp"
