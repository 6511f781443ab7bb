// AVX-512, beside the quantised matrices of avx512.cpp: float matrices, activation quantisation,
// norm, activation function and attention. Tails are masked lanes.
#include <immintrin.h>

#include <cstring>

#include "base/math.h"
#include "kernels/half.h"
#include "kernels/levels.h"

namespace picolm {
namespace {

#include "kernels/avx512_common.inc"

PICOLM_INLINE float tree_sum32(const VecF v[2]) {  // 32 lanes: i + 16, i + 8, then as above
    const VecF sum = _mm512_add_ps(v[0], v[1]);
    return tree_sum(_mm256_add_ps(lower_half(sum), upper_half(sum)));
}
PICOLM_INLINE VecF load_f(const float* p) {
    return _mm512_loadu_ps(p);
}
PICOLM_INLINE VecF load_f(const float* p, __mmask16 lanes) {
    return _mm512_maskz_loadu_ps(lanes, p);
}
PICOLM_INLINE __m256i load_u16(const void* p, __mmask16 lanes) {
    return _mm256_maskz_loadu_epi16(lanes, p);
}

// ---- float weights: two vectors are the 32 lanes

struct F32 {
    static constexpr size_t kBytes = 4;
    PICOLM_INLINE static VecF load(const uint8_t* p) { return _mm512_loadu_ps(p); }
    PICOLM_INLINE static VecF load(const uint8_t* p, __mmask16 lanes) {
        return _mm512_maskz_loadu_ps(lanes, p);
    }
};
struct F16 {
    static constexpr size_t kBytes = 2;
    PICOLM_INLINE static VecF load(const uint8_t* p) { return _mm512_cvtph_ps(load256(p)); }
    PICOLM_INLINE static VecF load(const uint8_t* p, __mmask16 lanes) {
        return _mm512_cvtph_ps(load_u16(p, lanes));
    }
};
struct BF16 {
    static constexpr size_t kBytes = 2;
    PICOLM_INLINE static VecF widen(__m256i v) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
    }
    PICOLM_INLINE static VecF load(const uint8_t* p) { return widen(load256(p)); }
    PICOLM_INLINE static VecF load(const uint8_t* p, __mmask16 lanes) {
        return widen(load_u16(p, lanes));
    }
};

// kR rows from `row` times kT tokens from `token`.
template <class Format, uint32_t kR, uint32_t kT>
void float_block(const MatArgs& a, const float* x, size_t x_stride, uint32_t row, uint32_t token) {
    VecF acc[kR][kT][2];
    for (auto& rows : acc)
        for (auto& lanes : rows) lanes[0] = lanes[1] = _mm512_setzero_ps();
    const uint8_t* w = a.w + row * a.row_bytes;
    const float* in = x + token * x_stride;
    uint32_t i = 0;
    for (; i + 32 <= a.n_in; i += 32)
        for (uint32_t v = 0; v < 2; ++v)
            for (uint32_t r = 0; r < kR; ++r) {
                const VecF wv = Format::load(w + r * a.row_bytes + (i + 16 * v) * Format::kBytes);
                for (uint32_t t = 0; t < kT; ++t)
                    acc[r][t][v] = _mm512_add_ps(
                        acc[r][t][v], _mm512_mul_ps(wv, load_f(in + t * x_stride + i + 16 * v)));
            }
    for (uint32_t v = 0; v < 2 && i < a.n_in; ++v, i += 16) {
        const __mmask16 lanes = first_lanes(a.n_in - i);
        for (uint32_t r = 0; r < kR; ++r) {
            const VecF wv = Format::load(w + r * a.row_bytes + i * Format::kBytes, lanes);
            for (uint32_t t = 0; t < kT; ++t)
                acc[r][t][v] =
                    _mm512_mask_add_ps(acc[r][t][v], lanes, acc[r][t][v],
                                       _mm512_mul_ps(wv, load_f(in + t * x_stride + i, lanes)));
        }
    }
    for (uint32_t r = 0; r < kR; ++r)
        for (uint32_t t = 0; t < kT; ++t)
            a.y[(token + t) * a.y_stride + row + r] = tree_sum32(acc[r][t]);
}

template <class Format, uint32_t kR>
void float_rows(const MatArgs& a, const float* x, size_t x_stride, uint32_t row) {
    uint32_t t = 0;
    for (; t + 4 <= a.n_tok; t += 4) float_block<Format, kR, 4>(a, x, x_stride, row, t);
    for (; t < a.n_tok; ++t) float_block<Format, kR, 1>(a, x, x_stride, row, t);
}

template <class Format>
void mat_float(const MatArgs& a, const float* x, size_t x_stride) {
    uint32_t r = 0;
    for (; r + 2 <= a.n_rows; r += 2) float_rows<Format, 2>(a, x, x_stride, r);
    for (; r < a.n_rows; ++r) float_rows<Format, 1>(a, x, x_stride, r);
}

// ---- activation quantisation

constexpr uint32_t kInfinityBits = 0x7f800000u;
constexpr uint32_t kTinyBits = 0x0f800000u;

PICOLM_INLINE uint32_t largest_lane(Vec v) {  // of values that are not negative
    const __m256i m = _mm256_max_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
    __m128i s = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(s));
}

// n: a multiple of 32.
bool quantize_group(const float* x, uint32_t n, int8_t* q, float* d) {
    Vec largest = _mm512_setzero_si512();
    const Vec magnitude = _mm512_set1_epi32(0x7fffffff);
    for (uint32_t i = 0; i < n; i += 16)
        largest = _mm512_max_epi32(largest, _mm512_and_si512(load(x + i), magnitude));
    const uint32_t bits = largest_lane(largest);
    if (bits >= kInfinityBits) return false;
    if (bits < kTinyBits) {
        std::memset(q, 0, n);
        *d = 0.0f;
        return true;
    }
    const float top = bits_to_f32(bits);
    const VecF inverse = _mm512_set1_ps(127.0f / top);
    for (uint32_t i = 0; i < n; i += 16)
        _mm_storeu_si128(
            reinterpret_cast<__m128i*>(q + i),
            _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(load_f(x + i), inverse))));
    *d = top / 127.0f;
    return true;
}

PICOLM_INLINE void fill_sums(ActBlock& y) {
    const __m128i ones = _mm_set1_epi16(1);
    __m128i part[4];
    for (int k = 0; k < 4; ++k) {
        // Sums of four, then of the four in each 128 bits: lane r of the result is the 16-sum r.
        Vec v =
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), load(y.q + 64 * k));
        v = _mm512_add_epi32(v, _mm512_shuffle_epi32(v, static_cast<_MM_PERM_ENUM>(0x4e)));
        v = _mm512_add_epi32(v, _mm512_shuffle_epi32(v, static_cast<_MM_PERM_ENUM>(0xb1)));
        const Vec heads = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
        part[k] = _mm512_castsi512_si128(_mm512_permutexvar_epi32(heads, v));
    }
    const __m128i low = _mm_packs_epi32(part[0], part[1]), high = _mm_packs_epi32(part[2], part[3]);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y.sums16), low);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y.sums16 + 8), high);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y.sums32),
                     _mm_packs_epi32(_mm_madd_epi16(low, ones), _mm_madd_epi16(high, ones)));
}

#include "kernels/quantize_rows.inc"

// ---- norm, activation function, conversion

PICOLM_INLINE VecF exp16(VecF x) {
    using namespace exp_f32_constants;
    const __mmask16 valid = _mm512_cmp_ps_mask(x, _mm512_set1_ps(kLowest), _CMP_GE_OQ);
    x = _mm512_min_ps(x, _mm512_set1_ps(kHighest));
    const VecF round = _mm512_set1_ps(kRound);
    const VecF n =
        _mm512_sub_ps(_mm512_add_ps(_mm512_mul_ps(x, _mm512_set1_ps(kLog2E)), round), round);
    const VecF r = _mm512_sub_ps(_mm512_sub_ps(x, _mm512_mul_ps(n, _mm512_set1_ps(kLn2High))),
                                 _mm512_mul_ps(n, _mm512_set1_ps(kLn2Low)));
    VecF p = _mm512_set1_ps(kC7);
    for (const float c : {kC6, kC5, kC4, kC3, kC2})
        p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(c));
    p = _mm512_add_ps(_mm512_add_ps(_mm512_mul_ps(_mm512_mul_ps(p, r), r), r),
                      _mm512_set1_ps(1.0f));
    const Vec exponent =
        _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23);
    return _mm512_maskz_mul_ps(valid, p, _mm512_castsi512_ps(exponent));
}

bool rms_norm(const float* x, const float* w, uint32_t n, float eps, float* y) {
    VecF acc[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    for (uint32_t i = 0; i < n; i += 32)
        for (uint32_t v = 0; v < 2 && i + 16 * v < n; ++v) {
            const __mmask16 lanes = first_lanes(n - i - 16 * v);
            const VecF in = load_f(x + i + 16 * v, lanes);
            acc[v] = _mm512_add_ps(acc[v], _mm512_mul_ps(in, in));
        }
    const float sum = tree_sum32(acc);
    if (!(sum < __builtin_inff())) return false;
    const VecF factor = _mm512_set1_ps(1.0f / __builtin_sqrtf(sum / static_cast<float>(n) + eps));
    for (uint32_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first_lanes(n - i);
        _mm512_mask_storeu_ps(
            y + i, lanes,
            _mm512_mul_ps(_mm512_mul_ps(load_f(x + i, lanes), factor), load_f(w + i, lanes)));
    }
    return true;
}

void add(float* x, const float* y, uint32_t n) {
    for (uint32_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first_lanes(n - i);
        _mm512_mask_storeu_ps(x + i, lanes,
                              _mm512_add_ps(load_f(x + i, lanes), load_f(y + i, lanes)));
    }
}

void scale(float* x, float factor, uint32_t n) {
    const VecF f = _mm512_set1_ps(factor);
    for (uint32_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first_lanes(n - i);
        _mm512_mask_storeu_ps(x + i, lanes, _mm512_mul_ps(load_f(x + i, lanes), f));
    }
}

void swiglu(float* gate, const float* up, uint32_t n) {
    const VecF one = _mm512_set1_ps(1.0f);
    const Vec sign = _mm512_set1_epi32(INT32_MIN);
    for (uint32_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first_lanes(n - i);
        const VecF x = load_f(gate + i, lanes);
        const VecF e = exp16(_mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(x), sign)));
        const __mmask16 positive = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GE_OQ);
        const VecF sigmoid =
            _mm512_div_ps(_mm512_mask_mov_ps(e, positive, one), _mm512_add_ps(one, e));
        _mm512_mask_storeu_ps(gate + i, lanes,
                              _mm512_mul_ps(_mm512_mul_ps(x, sigmoid), load_f(up + i, lanes)));
    }
}

void to_f16(const float* x, uint16_t* y, uint32_t n) {
    for (uint32_t i = 0; i < n; i += 16) {
        const __mmask16 lanes = first_lanes(n - i);
        _mm256_mask_storeu_epi16(y + i, lanes,
                                 _mm512_cvtps_ph(load_f(x + i, lanes), _MM_FROUND_TO_NEAREST_INT));
    }
}

// ---- keys and values

// False when one of 32 values is not finite.
bool range32(const float* x, float* low, float* high) {
    const VecF v[2] = {load_f(x), load_f(x + 16)};
    const Vec magnitude = _mm512_set1_epi32(0x7fffffff);
    const Vec largest = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(v[0]), magnitude),
                                         _mm512_and_si512(_mm512_castps_si512(v[1]), magnitude));
    float lows[16], highs[16];
    _mm512_storeu_ps(lows, _mm512_min_ps(v[0], v[1]));
    _mm512_storeu_ps(highs, _mm512_max_ps(v[0], v[1]));
    *low = lows[0];
    *high = highs[0];
    for (int i = 1; i < 16; ++i) {
        *low = lows[i] < *low ? lows[i] : *low;
        *high = highs[i] > *high ? highs[i] : *high;
    }
    return largest_lane(largest) < kInfinityBits;
}

void round32(const float* x, float inverse, float lowest, float highest, int8_t* q) {
    const VecF factor = _mm512_set1_ps(inverse);
    const VecF low = _mm512_set1_ps(lowest), high = _mm512_set1_ps(highest);
    for (uint32_t i = 0; i < kKvBlock; i += 16) {
        const VecF scaled = _mm512_mul_ps(load_f(x + i), factor);
        const Vec v = _mm512_cvtps_epi32(_mm512_min_ps(_mm512_max_ps(scaled, low), high));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(q + i), _mm512_cvtepi32_epi8(v));
    }
}

#include "kernels/quantize_kv.inc"

// ---- attention

PICOLM_INLINE VecF load_halves(const uint16_t* p) {
    return _mm512_cvtph_ps(load256(p));
}

// Dimension d of K at 16 slots from j on, without its scale. kOdd: d is odd.
template <KvType kType, bool kOdd>
PICOLM_INLINE VecF load_k(const uint8_t* data, uint32_t d, uint32_t j) {
    if constexpr (kType == KvType::f16)
        return load_halves(reinterpret_cast<const uint16_t*>(data) + d * kPage + j);
    if constexpr (kType == KvType::q8_0)
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load128(data + d * kPage + j)));
    const __m128i pairs = load128(data + d / 2 * kPage + j);
    const __m128i level = _mm_and_si128(kOdd ? _mm_srli_epi16(pairs, 4) : pairs, _mm_set1_epi8(15));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_sub_epi8(level, _mm_set1_epi8(8))));
}

// Some of the dimensions i to i + 15, i a multiple of 16, of V at one slot, without their scale.
template <KvType kType>
PICOLM_INLINE VecF load_v(const uint8_t* row, uint32_t i, __mmask16 lanes) {
    if constexpr (kType == KvType::f16)
        return _mm512_cvtph_ps(load_u16(reinterpret_cast<const uint16_t*>(row) + i, lanes));
    if constexpr (kType == KvType::q8_0)
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(lanes, row + i)));
    // The bytes whose low half is a wanted lane.
    const __mmask16 bytes = static_cast<__mmask16>((1u << (__builtin_popcount(lanes) + 1) / 2) - 1);
    const __m128i pairs = _mm_maskz_loadu_epi8(bytes, row + i / 2), mask = _mm_set1_epi8(15);
    const __m128i level = _mm_unpacklo_epi8(_mm_and_si128(pairs, mask),
                                            _mm_and_si128(_mm_srli_epi16(pairs, 4), mask));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_sub_epi8(level, _mm_set1_epi8(8))));
}

// acc += q[d] * k[d] at 16 * kV slots from j on.
template <uint32_t kQ, uint32_t kV, KvType kType, bool kOdd>
PICOLM_INLINE void add_scores(VecF acc[kQ][kV], const AttnQuery* queries, const uint8_t* data,
                              const VecF scale[kV], uint32_t d, uint32_t j) {
    VecF k[kV];
    for (uint32_t v = 0; v < kV; ++v) {
        k[v] = load_k<kType, kOdd>(data, d, j + 16 * v);
        if (kType != KvType::f16) k[v] = _mm512_mul_ps(k[v], scale[v]);
    }
    for (uint32_t i = 0; i < kQ; ++i) {
        const VecF q = _mm512_set1_ps(queries[i].q[d]);
        for (uint32_t v = 0; v < kV; ++v)
            acc[i][v] = _mm512_add_ps(acc[i][v], _mm512_mul_ps(q, k[v]));
    }
}

// p[query][slot] = sum over d, in order, of q[d] * k[d][slot].
template <uint32_t kQ, KvType kType>
void scores(const AttnPage& page, uint32_t n_k, const AttnQuery* queries, float (*p)[kPage]) {
    constexpr uint32_t kV = kQ > 4 ? 2 : 4;
    const KvParts parts = kv_parts(page.k, kType, n_k);
    for (uint32_t j = 0; j < kPage; j += 16 * kV) {
        VecF acc[kQ][kV], scale[kV];
        for (auto& vectors : acc)
            for (VecF& each : vectors) each = _mm512_setzero_ps();
        for (uint32_t d = 0; d < n_k;) {
            for (uint32_t v = 0; v < kV && kType != KvType::f16; ++v)
                scale[v] = load_halves(parts.scales + d / kKvBlock * kPage + j + 16 * v);
            const uint32_t end = n_k - d < kKvBlock ? n_k : d + kKvBlock;
            for (; d + 2 <= end; d += 2) {
                add_scores<kQ, kV, kType, false>(acc, queries, parts.data, scale, d, j);
                add_scores<kQ, kV, kType, true>(acc, queries, parts.data, scale, d + 1, j);
            }
            for (; d < end; ++d)
                add_scores<kQ, kV, kType, false>(acc, queries, parts.data, scale, d, j);
        }
        for (uint32_t i = 0; i < kQ; ++i)
            for (uint32_t v = 0; v < kV; ++v) _mm512_storeu_ps(p[i] + j + 16 * v, acc[i][v]);
    }
}

// Turns scores into weights; updates m and l; gives the factor for what was summed before.
float soften(AttnQuery& query, float* p) {
    const uint64_t seen = (~uint64_t{0} >> (kPage - (query.end - query.first))) << query.first;
    const auto visible = [&](int j) { return static_cast<__mmask16>(seen >> j); };
    VecF top = _mm512_set1_ps(query.m);
    for (int j = 0; j < kPage; j += 16)
        top = _mm512_mask_max_ps(top, visible(j), load_f(p + j), top);
    float lane[16], m = query.m;
    _mm512_storeu_ps(lane, top);
    for (const float each : lane) m = each > m ? each : m;
    __m256 sum = _mm256_setzero_ps();
    for (int j = 0; j < kPage; j += 16) {
        const VecF e = exp16(_mm512_sub_ps(load_f(p + j), _mm512_set1_ps(m)));
        const VecF kept = _mm512_maskz_mov_ps(visible(j), e);
        _mm512_storeu_ps(p + j, kept);
        sum = _mm256_add_ps(_mm256_add_ps(sum, lower_half(kept)), upper_half(kept));
    }
    const float keep = exp_f32(query.m - m);
    query.m = m;
    query.l = query.l * keep + tree_sum(sum);
    return keep;
}

// o[i] += p[j] * v[j][i] for j in [begin, end), the dimensions of kV vectors from i on (of the last
// only some lanes), kQ queries. scale: [2][kPage] of the blocks from i on.
template <uint32_t kQ, uint32_t kV, KvType kType>
void weigh(const uint8_t* data, const float (*scale)[kPage], uint32_t n_v, AttnQuery* queries,
           const float (*p)[kPage], uint32_t i, __mmask16 last, uint32_t begin, uint32_t end) {
    VecF acc[kQ][kV];
    const auto lanes = [&](uint32_t v) { return v + 1 < kV ? __mmask16(0xffff) : last; };
    for (uint32_t q = 0; q < kQ; ++q)
        for (uint32_t v = 0; v < kV; ++v) acc[q][v] = load_f(queries[q].o + i + 16 * v, lanes(v));
    const size_t row_bytes = kv_data_bytes(kType, n_v);
    for (uint32_t j = begin; j < end; ++j) {
        VecF in[kV];
        for (uint32_t v = 0; v < kV; ++v) {
            in[v] = load_v<kType>(data + j * row_bytes, i + 16 * v, lanes(v));
            if (kType != KvType::f16) in[v] = _mm512_mul_ps(in[v], _mm512_set1_ps(scale[v / 2][j]));
        }
        for (uint32_t q = 0; q < kQ; ++q) {
            const VecF weight = _mm512_set1_ps(p[q][j]);
            for (uint32_t v = 0; v < kV; ++v)
                acc[q][v] = _mm512_add_ps(acc[q][v], _mm512_mul_ps(weight, in[v]));
        }
    }
    for (uint32_t q = 0; q < kQ; ++q)
        for (uint32_t v = 0; v < kV; ++v)
            _mm512_mask_storeu_ps(queries[q].o + i + 16 * v, lanes(v), acc[q][v]);
}

template <uint32_t kQ, KvType kType>
void weigh_all(const AttnPage& page, uint32_t n_v, AttnQuery* queries, const float (*p)[kPage],
               uint32_t begin, uint32_t end) {
    const KvParts parts = kv_parts(page.v, kType, n_v);
    float scale[2][kPage];
    const auto load_scales = [&](uint32_t i, uint32_t n_blocks) {
        for (uint32_t b = 0; b < n_blocks && kType != KvType::f16; ++b)
            for (uint32_t j = 0; j < kPage; j += 16)
                _mm512_storeu_ps(scale[b] + j,
                                 load_halves(parts.scales + (i / kKvBlock + b) * kPage + j));
    };
    uint32_t i = 0;
    for (; i + 64 <= n_v; i += 64) {
        load_scales(i, 2);
        weigh<kQ, 4, kType>(parts.data, scale, n_v, queries, p, i, 0xffff, begin, end);
    }
    for (; i < n_v; i += 16) {
        load_scales(i, 1);
        weigh<kQ, 1, kType>(parts.data, scale, n_v, queries, p, i, first_lanes(n_v - i), begin,
                            end);
    }
}

#include "kernels/attention_groups.inc"

}  // namespace

void fill_avx512_operators(Kernels& table) {
    table.mat_float[static_cast<size_t>(TensorType::f32)] = mat_float<F32>;
    table.mat_float[static_cast<size_t>(TensorType::f16)] = mat_float<F16>;
    table.mat_float[static_cast<size_t>(TensorType::bf16)] = mat_float<BF16>;
    table.quantize_q256 = quantize_q256;
    table.quantize_q32 = quantize_q32;
    table.rms_norm = rms_norm;
    table.add = add;
    table.scale = scale;
    table.swiglu = swiglu;
    table.to_f16 = to_f16;
    table.quantize_kv = quantize_kv;
    table.attn_page = attn_page;
}

}  // namespace picolm
