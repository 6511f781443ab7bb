// avxvnni.cpp of src/kernels with its two instructions emulated; the rest is AVX2, so it runs where
// the CPU has that.
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace picolm::emulated {

static __m256i dpbusd(__m256i sum, __m256i a, __m256i b) {
    int32_t lanes[8];
    uint8_t u[32];
    int8_t s[32];
    std::memcpy(lanes, &sum, sizeof lanes);
    std::memcpy(u, &a, sizeof u);
    std::memcpy(s, &b, sizeof s);
    for (int i = 0; i < 32; ++i) lanes[i / 4] += u[i] * s[i];
    std::memcpy(&sum, lanes, sizeof lanes);
    return sum;
}

static __m256i dpwssd(__m256i sum, __m256i a, __m256i b) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

}  // namespace picolm::emulated

#define _mm256_dpbusd_avx_epi32 emulated::dpbusd
#define _mm256_dpwssd_avx_epi32 emulated::dpwssd
#define fill_avxvnni emulated_fill_avxvnni
#include "../../../src/kernels/avxvnni.cpp"
