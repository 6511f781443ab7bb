// Stands in for the compiler's <immintrin.h> when an AVX-512 or AMX file is compiled for a test on
// a CPU that lacks them: SIMDe's portable functions, and ours for what SIMDe 0.7.4 does not have.
// The tiles of AMX are emulated in amx_tiles.h. Only what src/kernels uses.
#pragma once

// Calls, not copies: inlined, a kernel of emulated instructions takes minutes to compile.
#define SIMDE_NO_INLINE
#define PICOLM_INLINE inline
#define SIMDE_ENABLE_NATIVE_ALIASES
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#pragma GCC diagnostic pop

#include <cstdint>
#include <cstring>

#include "kernels/emulated/amx_tiles.h"
#include "kernels/half.h"

namespace emulated {

// A vector as an array of its elements.
template <class T, class V>
struct Elements {
    static constexpr int kCount = sizeof(V) / sizeof(T);
    T at[kCount];
    explicit Elements(const V& v) { std::memcpy(at, &v, sizeof v); }
    V vector() const {
        V v;
        std::memcpy(&v, at, sizeof v);
        return v;
    }
};
// out[i] = f(in[i]); missing ones are zero.
template <class Out, class In, class OutV, class InV, class F>
OutV map(const InV& v, F f) {
    const Elements<In, InV> in(v);
    OutV zero;
    std::memset(&zero, 0, sizeof zero);
    Elements<Out, OutV> out(zero);
    for (int i = 0; i < out.kCount && i < in.kCount; ++i) out.at[i] = static_cast<Out>(f(in.at[i]));
    return out.vector();
}
// Masked lanes are neither read nor written.
template <class T, class V>
V load_masked(uint64_t mask, const void* p) {
    V zero;
    std::memset(&zero, 0, sizeof zero);
    Elements<T, V> out(zero);
    for (int i = 0; i < out.kCount; ++i)
        if (mask >> i & 1)
            std::memcpy(&out.at[i], static_cast<const char*>(p) + sizeof(T) * i, sizeof(T));
    return out.vector();
}
template <class T, class V>
void store_masked(void* p, uint64_t mask, const V& v) {
    const Elements<T, V> in(v);
    for (int i = 0; i < in.kCount; ++i)
        if (mask >> i & 1) std::memcpy(static_cast<char*>(p) + sizeof(T) * i, &in.at[i], sizeof(T));
}

inline int32_t round_to_int(float x) {  // to nearest even, as cvtps2dq; the tests stay in range
    return static_cast<int32_t>(__builtin_nearbyintf(x));
}

template <int kImm>
__m512i shuffle_epi32(__m512i v) {
    Elements<int32_t, __m512i> in(v), out(v);
    for (int i = 0; i < 16; ++i) out.at[i] = in.at[i / 4 * 4 + (kImm >> (2 * (i % 4)) & 3)];
    return out.vector();
}
template <int kCompare>
uint16_t compare(__m512 a, __m512 b) {
    static_assert(kCompare == _CMP_GE_OQ);
    const Elements<float, __m512> x(a), y(b);
    uint16_t mask = 0;
    for (int i = 0; i < 16; ++i) mask = static_cast<uint16_t>(mask | (x.at[i] >= y.at[i]) << i);
    return mask;
}

}  // namespace emulated

using __mmask8 = uint8_t;
using __mmask16 = uint16_t;
using __mmask32 = uint32_t;
using __mmask64 = uint64_t;

#define PICOLM_EMULATE [[maybe_unused]] static inline

PICOLM_EMULATE __m512 _mm512_cvtepi32_ps(__m512i v) {
    return emulated::map<float, int32_t, __m512>(v, [](int32_t x) { return x; });
}
PICOLM_EMULATE __m512i _mm512_cvtps_epi32(__m512 v) {
    return emulated::map<int32_t, float, __m512i>(v, emulated::round_to_int);
}
PICOLM_EMULATE __m512i _mm512_cvtepi16_epi32(__m256i v) {
    return emulated::map<int32_t, int16_t, __m512i>(v, [](int16_t x) { return x; });
}
PICOLM_EMULATE __m512i _mm512_cvtepu16_epi32(__m256i v) {
    return emulated::map<int32_t, uint16_t, __m512i>(v, [](uint16_t x) { return x; });
}
#undef _mm512_cvtepi8_epi32
PICOLM_EMULATE __m512i _mm512_cvtepi8_epi32(__m128i v) {
    return emulated::map<int32_t, int8_t, __m512i>(v, [](int8_t x) { return x; });
}
PICOLM_EMULATE __m128i _mm512_cvtepi32_epi8(__m512i v) {
    return emulated::map<int8_t, int32_t, __m128i>(v, [](int32_t x) { return x; });
}
#undef _mm512_madd_epi16  // SIMDe's alias is that of the masked function
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)
#undef _mm_cvtph_ps
#undef _mm256_cvtph_ps
PICOLM_EMULATE __m128 _mm_cvtph_ps(__m128i v) {
    return emulated::map<float, uint16_t, __m128>(v, picolm::f16_to_f32);
}
PICOLM_EMULATE __m256 _mm256_cvtph_ps(__m128i v) {
    return emulated::map<float, uint16_t, __m256>(v, picolm::f16_to_f32);
}
PICOLM_EMULATE __m512 _mm512_cvtph_ps(__m256i v) {
    return emulated::map<float, uint16_t, __m512>(v, picolm::f16_to_f32);
}
PICOLM_EMULATE __m256i _mm512_cvtps_ph(__m512 v, int) {
    return emulated::map<uint16_t, float, __m256i>(v, picolm::f32_to_f16);
}
PICOLM_EMULATE __m512 _mm512_maskz_loadu_ps(__mmask16 mask, const void* p) {
    return emulated::load_masked<float, __m512>(mask, p);
}
PICOLM_EMULATE __m256i _mm256_maskz_loadu_epi16(__mmask16 mask, const void* p) {
    return emulated::load_masked<uint16_t, __m256i>(mask, p);
}
#undef _mm_maskz_loadu_epi8
PICOLM_EMULATE __m128i _mm_maskz_loadu_epi8(__mmask16 mask, const void* p) {
    return emulated::load_masked<uint8_t, __m128i>(mask, p);
}
PICOLM_EMULATE void _mm512_mask_storeu_ps(void* p, __mmask16 mask, __m512 v) {
    emulated::store_masked<float>(p, mask, v);
}
PICOLM_EMULATE void _mm_mask_storeu_ps(void* p, __mmask8 mask, __m128 v) {
    emulated::store_masked<float>(p, mask, v);
}
PICOLM_EMULATE void _mm256_mask_storeu_epi16(void* p, __mmask16 mask, __m256i v) {
    emulated::store_masked<uint16_t>(p, mask, v);
}
#undef _mm512_shuffle_epi32
#define _mm512_shuffle_epi32(v, imm) emulated::shuffle_epi32<static_cast<int>(imm)>(v)
#undef _mm512_cmp_ps_mask
#define _mm512_cmp_ps_mask(a, b, imm) emulated::compare<imm>(a, b)
#undef _mm_prefetch
#define _mm_prefetch(p, hint) static_cast<void>(p)
enum _MM_PERM_ENUM : int {};
