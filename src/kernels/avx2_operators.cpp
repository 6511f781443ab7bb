// AVX2 + F16C, beside the quantised matrices of avx2.cpp: float matrices, activation quantisation,
// norm, activation function and attention.
#include <immintrin.h>

#include <cstring>

#include "base/math.h"
#include "kernels/half.h"
#include "kernels/levels.h"

namespace picolm {
namespace {

#include "kernels/avx2_common.inc"

float tree_sum32(const VecF v[4]) {  // 32 lanes: i + 16, i + 8, then as above
    return tree_sum(_mm256_add_ps(_mm256_add_ps(v[0], v[2]), _mm256_add_ps(v[1], v[3])));
}

// ---- float weights: four vectors are the 32 lanes

struct F32 {
    static constexpr size_t kBytes = 4;
    static VecF load8(const uint8_t* p) {
        return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
    }
    static float load1(const uint8_t* p) {
        float value;
        std::memcpy(&value, p, sizeof value);
        return value;
    }
};
uint16_t load_u16(const uint8_t* p) {
    uint16_t value;
    std::memcpy(&value, p, sizeof value);
    return value;
}
struct F16 {
    static constexpr size_t kBytes = 2;
    static VecF load8(const uint8_t* p) { return _mm256_cvtph_ps(load128(p)); }
    static float load1(const uint8_t* p) { return f16_to_f32(load_u16(p)); }
};
struct BF16 {
    static constexpr size_t kBytes = 2;
    static VecF load8(const uint8_t* p) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load128(p)), 16));
    }
    static float load1(const uint8_t* p) { return bf16_to_f32(load_u16(p)); }
};

template <class Format, uint32_t kR, uint32_t kT>
void float_block(const MatArgs& a, const float* x, size_t x_stride, uint32_t row, uint32_t token) {
    VecF acc[kR][kT][4];
    for (auto& rows : acc)
        for (auto& lanes : rows)
            for (VecF& each : lanes) each = _mm256_setzero_ps();
    const uint8_t* w = a.w + row * a.row_bytes;
    const float* in = x + token * x_stride;
    uint32_t i = 0;
    for (; i + 32 <= a.n_in; i += 32)
        for (uint32_t v = 0; v < 4; ++v)
            for (uint32_t r = 0; r < kR; ++r) {
                const VecF wv = Format::load8(w + r * a.row_bytes + (i + 8 * v) * Format::kBytes);
                for (uint32_t t = 0; t < kT; ++t)
                    acc[r][t][v] = _mm256_add_ps(
                        acc[r][t][v],
                        _mm256_mul_ps(wv, _mm256_loadu_ps(in + t * x_stride + i + 8 * v)));
            }
    for (uint32_t r = 0; r < kR; ++r)
        for (uint32_t t = 0; t < kT; ++t) {
            if (i < a.n_in) {
                float lane[32];
                for (int v = 0; v < 4; ++v) _mm256_storeu_ps(lane + 8 * v, acc[r][t][v]);
                for (uint32_t k = i; k < a.n_in; ++k)
                    lane[k - i] =
                        lane[k - i] + Format::load1(w + r * a.row_bytes + k * Format::kBytes) *
                                          in[t * x_stride + k];
                for (int v = 0; v < 4; ++v) acc[r][t][v] = _mm256_loadu_ps(lane + 8 * v);
            }
            a.y[(token + t) * a.y_stride + row + r] = tree_sum32(acc[r][t]);
        }
}

template <class Format>
void mat_float(const MatArgs& a, const float* x, size_t x_stride) {
    uint32_t r = 0;
    for (; r + 2 <= a.n_rows; r += 2) {
        if (a.n_tok == 1) {
            float_block<Format, 2, 1>(a, x, x_stride, r, 0);
            continue;
        }
        for (uint32_t row = r; row < r + 2; ++row) {
            uint32_t t = 0;
            for (; t + 3 <= a.n_tok; t += 3) float_block<Format, 1, 3>(a, x, x_stride, row, t);
            for (; t < a.n_tok; ++t) float_block<Format, 1, 1>(a, x, x_stride, row, t);
        }
    }
    for (; r < a.n_rows; ++r)
        for (uint32_t t = 0; t < a.n_tok; ++t) float_block<Format, 1, 1>(a, x, x_stride, r, t);
}

// ---- operators

constexpr uint32_t kInfinityBits = 0x7f800000u;
constexpr uint32_t kTinyBits = 0x0f800000u;

// n: a multiple of 32.
bool quantize_group(const float* x, uint32_t n, int8_t* q, float* d) {
    Vec largest = _mm256_setzero_si256();
    const Vec magnitude = _mm256_set1_epi32(0x7fffffff);
    for (uint32_t i = 0; i < n; i += 8)
        largest = _mm256_max_epi32(largest, _mm256_and_si256(load(x + i), magnitude));
    int32_t lane[8];
    _mm256_storeu_si256(reinterpret_cast<Vec*>(lane), largest);
    int32_t bits = 0;
    for (const int32_t each : lane) bits = each > bits ? each : bits;
    if (static_cast<uint32_t>(bits) >= kInfinityBits) return false;
    if (static_cast<uint32_t>(bits) < kTinyBits) {
        std::memset(q, 0, n);
        *d = 0.0f;
        return true;
    }
    const float top = bits_to_f32(static_cast<uint32_t>(bits));
    const VecF inverse = _mm256_set1_ps(127.0f / top);
    const Vec order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (uint32_t i = 0; i < n; i += 32) {
        Vec v[4];
        for (uint32_t k = 0; k < 4; ++k)
            v[k] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i + 8 * k), inverse));
        const Vec bytes =
            _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
        _mm256_storeu_si256(reinterpret_cast<Vec*>(q + i),
                            _mm256_permutevar8x32_epi32(bytes, order));
    }
    *d = top / 127.0f;
    return true;
}

PICOLM_INLINE void fill_sums(ActBlock& y) {
    const Vec ones8 = _mm256_set1_epi8(1), ones16 = _mm256_set1_epi16(1);
    for (int g = 0; g < 8; ++g) {
        // 32 bytes to 8 sums of four, then the sums of each half.
        const Vec fours =
            _mm256_madd_epi16(_mm256_maddubs_epi16(ones8, load(y.q + 32 * g)), ones16);
        const Vec eights = _mm256_hadd_epi32(fours, fours);
        const Vec halves = _mm256_hadd_epi32(eights, eights);
        const int low = _mm_cvtsi128_si32(_mm256_castsi256_si128(halves));
        const int high = _mm_cvtsi128_si32(_mm256_extracti128_si256(halves, 1));
        y.sums16[2 * g] = static_cast<int16_t>(low);
        y.sums16[2 * g + 1] = static_cast<int16_t>(high);
        y.sums32[g] = static_cast<int16_t>(low + high);
    }
}

#include "kernels/quantize_rows.inc"

VecF exp8(VecF x) {
    using namespace exp_f32_constants;
    const VecF valid = _mm256_cmp_ps(x, _mm256_set1_ps(kLowest), _CMP_GE_OQ);
    x = _mm256_min_ps(x, _mm256_set1_ps(kHighest));
    const VecF round = _mm256_set1_ps(kRound);
    const VecF n =
        _mm256_sub_ps(_mm256_add_ps(_mm256_mul_ps(x, _mm256_set1_ps(kLog2E)), round), round);
    const VecF r = _mm256_sub_ps(_mm256_sub_ps(x, _mm256_mul_ps(n, _mm256_set1_ps(kLn2High))),
                                 _mm256_mul_ps(n, _mm256_set1_ps(kLn2Low)));
    VecF p = _mm256_set1_ps(kC7);
    for (const float c : {kC6, kC5, kC4, kC3, kC2})
        p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(c));
    p = _mm256_add_ps(_mm256_add_ps(_mm256_mul_ps(_mm256_mul_ps(p, r), r), r),
                      _mm256_set1_ps(1.0f));
    const Vec exponent =
        _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_and_ps(_mm256_mul_ps(p, _mm256_castsi256_ps(exponent)), valid);
}

bool rms_norm(const float* x, const float* w, uint32_t n, float eps, float* y) {
    VecF acc[4];
    for (VecF& each : acc) each = _mm256_setzero_ps();
    uint32_t i = 0;
    for (; i + 32 <= n; i += 32)
        for (uint32_t v = 0; v < 4; ++v) {
            const VecF in = _mm256_loadu_ps(x + i + 8 * v);
            acc[v] = _mm256_add_ps(acc[v], _mm256_mul_ps(in, in));
        }
    if (i < n) {
        float lane[32];
        for (int v = 0; v < 4; ++v) _mm256_storeu_ps(lane + 8 * v, acc[v]);
        for (uint32_t k = i; k < n; ++k) lane[k - i] = lane[k - i] + x[k] * x[k];
        for (int v = 0; v < 4; ++v) acc[v] = _mm256_loadu_ps(lane + 8 * v);
    }
    const float sum = tree_sum32(acc);
    if (!(sum < __builtin_inff())) return false;
    const float factor = 1.0f / __builtin_sqrtf(sum / static_cast<float>(n) + eps);
    for (i = 0; i + 8 <= n; i += 8)
        _mm256_storeu_ps(
            y + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(factor)),
                                 _mm256_loadu_ps(w + i)));
    for (; i < n; ++i) y[i] = (x[i] * factor) * w[i];
    return true;
}

void add(float* x, const float* y, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) x[i] = x[i] + y[i];
}

void scale(float* x, float factor, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) x[i] = x[i] * factor;
}

VecF swiglu8(VecF x, VecF up) {
    const VecF sign = _mm256_set1_ps(-0.0f), one = _mm256_set1_ps(1.0f);
    const VecF e = exp8(_mm256_or_ps(x, sign));
    const VecF positive = _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_GE_OQ);
    const VecF sigmoid = _mm256_div_ps(_mm256_blendv_ps(e, one, positive), _mm256_add_ps(one, e));
    return _mm256_mul_ps(_mm256_mul_ps(x, sigmoid), up);
}

void swiglu(float* gate, const float* up, uint32_t n) {
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(gate + i, swiglu8(_mm256_loadu_ps(gate + i), _mm256_loadu_ps(up + i)));
    if (i == n) return;
    float g[8] = {}, u[8] = {};
    std::memcpy(g, gate + i, (n - i) * sizeof(float));
    std::memcpy(u, up + i, (n - i) * sizeof(float));
    _mm256_storeu_ps(g, swiglu8(_mm256_loadu_ps(g), _mm256_loadu_ps(u)));
    std::memcpy(gate + i, g, (n - i) * sizeof(float));
}

void to_f16(const float* x, uint16_t* y, uint32_t n) {
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; ++i) y[i] = f32_to_f16(x[i]);
}

// ---- keys and values

float max_lane(VecF v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

// False when one of 32 values is not finite.
bool range32(const float* x, float* low, float* high) {
    const VecF sign = _mm256_set1_ps(-0.0f), infinity = _mm256_set1_ps(__builtin_inff());
    VecF least = _mm256_loadu_ps(x), most = least, bad = _mm256_setzero_ps();
    for (uint32_t i = 0; i < kKvBlock; i += 8) {
        const VecF v = _mm256_loadu_ps(x + i);
        least = _mm256_min_ps(least, v);
        most = _mm256_max_ps(most, v);
        bad = _mm256_or_ps(bad, _mm256_cmp_ps(_mm256_andnot_ps(sign, v), infinity, _CMP_NLT_UQ));
    }
    *low = -max_lane(_mm256_xor_ps(least, sign));
    *high = max_lane(most);
    return _mm256_movemask_ps(bad) == 0;
}

void round32(const float* x, float inverse, float lowest, float highest, int8_t* q) {
    const VecF factor = _mm256_set1_ps(inverse);
    const VecF low = _mm256_set1_ps(lowest), high = _mm256_set1_ps(highest);
    Vec v[4];
    for (uint32_t k = 0; k < 4; ++k) {
        const VecF scaled = _mm256_mul_ps(_mm256_loadu_ps(x + 8 * k), factor);
        v[k] = _mm256_cvtps_epi32(_mm256_min_ps(_mm256_max_ps(scaled, low), high));
    }
    const Vec bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    _mm256_storeu_si256(
        reinterpret_cast<Vec*>(q),
        _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
}

#include "kernels/quantize_kv.inc"

// ---- attention

PICOLM_INLINE __m128i load64(const uint8_t* p) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
}
PICOLM_INLINE VecF load_halves(const uint16_t* p) {
    return _mm256_cvtph_ps(load128(p));
}

// Dimension d of K at 8 slots from j on, without its scale. kOdd: d is odd.
template <KvType kType, bool kOdd>
PICOLM_INLINE VecF load_k(const uint8_t* data, uint32_t d, uint32_t j) {
    if constexpr (kType == KvType::f16)
        return load_halves(reinterpret_cast<const uint16_t*>(data) + d * kPage + j);
    if constexpr (kType == KvType::q8_0)
        return to_float(_mm256_cvtepi8_epi32(load64(data + d * kPage + j)));
    const Vec pairs = _mm256_cvtepu8_epi32(load64(data + d / 2 * kPage + j));
    const Vec level =
        kOdd ? _mm256_srli_epi32(pairs, 4) : _mm256_and_si256(pairs, _mm256_set1_epi32(15));
    return to_float(_mm256_sub_epi32(level, _mm256_set1_epi32(8)));
}

// Dimensions i to i + 7, i a multiple of 8, of V at one slot, without their scale.
template <KvType kType>
PICOLM_INLINE VecF load_v(const uint8_t* row, uint32_t i) {
    if constexpr (kType == KvType::f16)
        return load_halves(reinterpret_cast<const uint16_t*>(row) + i);
    if constexpr (kType == KvType::q8_0) return to_float(_mm256_cvtepi8_epi32(load64(row + i)));
    int32_t eight;
    std::memcpy(&eight, row + i / 2, sizeof eight);
    const Vec level = _mm256_and_si256(
        _mm256_srlv_epi32(_mm256_set1_epi32(eight), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28)),
        _mm256_set1_epi32(15));
    return to_float(_mm256_sub_epi32(level, _mm256_set1_epi32(8)));
}

// acc += q[d] * k[d] at 16 slots from j on.
template <uint32_t kQ, KvType kType, bool kOdd>
PICOLM_INLINE void add_scores(VecF acc[kQ][2], const AttnQuery* queries, const uint8_t* data,
                              const VecF scale[2], uint32_t d, uint32_t j) {
    VecF k[2];
    for (uint32_t v = 0; v < 2; ++v) {
        k[v] = load_k<kType, kOdd>(data, d, j + 8 * v);
        if (kType != KvType::f16) k[v] = _mm256_mul_ps(k[v], scale[v]);
    }
    for (uint32_t i = 0; i < kQ; ++i) {
        const VecF q = _mm256_set1_ps(queries[i].q[d]);
        for (uint32_t v = 0; v < 2; ++v)
            acc[i][v] = _mm256_add_ps(acc[i][v], _mm256_mul_ps(q, k[v]));
    }
}

// p[query][slot] = sum over d, in order, of q[d] * k[d][slot]. Meanwhile the lines of V (first
// half) and of the next page's K arrive.
template <uint32_t kQ, KvType kType>
void scores(const AttnPage& page, uint32_t n_k, const AttnQuery* queries, float (*p)[kPage]) {
    const KvParts parts = kv_parts(page.k, kType, n_k);
    const char* ahead[2] = {static_cast<const char*>(page.v),
                            static_cast<const char*>(page.next_k ? page.next_k : page.k)};
    // What 16 slots take of a dimension, twice: two rounds fetch V, two the next K.
    const uint32_t step[2] = {kv_row_bytes(page.types.v, kKvBlock), kv_row_bytes(kType, kKvBlock)};
    for (uint32_t j = 0; j < kPage; j += 16) {
        const uint32_t bytes = step[j / 32];
        const char* lines = ahead[j / 32] + j / 16 % 2 * bytes * n_k;
        VecF acc[kQ][2], scale[2] = {};
        for (auto& pair : acc) pair[0] = pair[1] = _mm256_setzero_ps();
        for (uint32_t d = 0; d < n_k;) {
            if (kType != KvType::f16)
                for (uint32_t v = 0; v < 2; ++v)
                    scale[v] = load_halves(parts.scales + d / kKvBlock * kPage + j + 8 * v);
            const uint32_t end = n_k - d < kKvBlock ? n_k : d + kKvBlock;
            for (; d + 2 <= end; d += 2) {
                _mm_prefetch(lines + bytes * d, _MM_HINT_T0);
                add_scores<kQ, kType, false>(acc, queries, parts.data, scale, d, j);
                _mm_prefetch(lines + bytes * (d + 1), _MM_HINT_T0);
                add_scores<kQ, kType, true>(acc, queries, parts.data, scale, d + 1, j);
            }
            for (; d < end; ++d)
                add_scores<kQ, kType, false>(acc, queries, parts.data, scale, d, j);
        }
        for (uint32_t i = 0; i < kQ; ++i) {
            _mm256_storeu_ps(p[i] + j, acc[i][0]);
            _mm256_storeu_ps(p[i] + j + 8, acc[i][1]);
        }
    }
}

// Turns scores into weights; updates m and l; gives the factor for what was summed before.
float soften(AttnQuery& query, float* p) {
    const Vec lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const Vec first = _mm256_set1_epi32(static_cast<int>(query.first) - 1);
    const Vec end = _mm256_set1_epi32(static_cast<int>(query.end));
    VecF visible[kPage / 8];
    VecF top = _mm256_set1_ps(query.m);
    for (int i = 0; i < kPage / 8; ++i) {
        const Vec slot = _mm256_add_epi32(lanes, _mm256_set1_epi32(8 * i));
        visible[i] = _mm256_castsi256_ps(
            _mm256_and_si256(_mm256_cmpgt_epi32(slot, first), _mm256_cmpgt_epi32(end, slot)));
        // A score that is not visible may be NaN; it becomes the query's own maximum.
        top = _mm256_max_ps(
            _mm256_blendv_ps(_mm256_set1_ps(query.m), _mm256_loadu_ps(p + 8 * i), visible[i]), top);
    }
    const float m = max_lane(top);
    VecF sum = _mm256_setzero_ps();
    for (int i = 0; i < kPage / 8; ++i) {
        const VecF e = exp8(_mm256_sub_ps(_mm256_loadu_ps(p + 8 * i), _mm256_set1_ps(m)));
        const VecF kept = _mm256_and_ps(e, visible[i]);
        _mm256_storeu_ps(p + 8 * i, kept);
        sum = _mm256_add_ps(sum, kept);
    }
    const float keep = exp_f32(query.m - m);
    query.m = m;
    query.l = query.l * keep + tree_sum(sum);
    return keep;
}

#include "kernels/attention_rest.inc"

// o[i] += p[j] * v[j][i] for j in [begin, end), 8 * kV dimensions of one block from i on, kQ
// queries. scale: [kPage] of that block.
template <uint32_t kQ, uint32_t kV, KvType kType>
void weigh(const uint8_t* data, const float* scale, uint32_t n_v, AttnQuery* queries,
           const float (*p)[kPage], uint32_t i, uint32_t begin, uint32_t end) {
    VecF acc[kQ][kV];
    for (uint32_t q = 0; q < kQ; ++q)
        for (uint32_t v = 0; v < kV; ++v) acc[q][v] = _mm256_loadu_ps(queries[q].o + i + 8 * v);
    const size_t row_bytes = kv_data_bytes(kType, n_v);
    for (uint32_t j = begin; j < end; ++j) {
        VecF in[kV];
        for (uint32_t v = 0; v < kV; ++v) {
            in[v] = load_v<kType>(data + j * row_bytes, i + 8 * v);
            if (kType != KvType::f16) in[v] = _mm256_mul_ps(in[v], _mm256_set1_ps(scale[j]));
        }
        for (uint32_t q = 0; q < kQ; ++q) {
            const VecF weight = _mm256_set1_ps(p[q][j]);
            for (uint32_t v = 0; v < kV; ++v)
                acc[q][v] = _mm256_add_ps(acc[q][v], _mm256_mul_ps(weight, in[v]));
        }
    }
    for (uint32_t q = 0; q < kQ; ++q)
        for (uint32_t v = 0; v < kV; ++v) _mm256_storeu_ps(queries[q].o + i + 8 * v, acc[q][v]);
}

template <uint32_t kQ, KvType kType>
void weigh_all(const AttnPage& page, uint32_t n_v, AttnQuery* queries, const float (*p)[kPage],
               uint32_t begin, uint32_t end) {
    const KvParts parts = kv_parts(page.v, kType, n_v);
    float scale[kPage];
    for (uint32_t i = 0; i < n_v;) {
        if (kType != KvType::f16 && i % kKvBlock == 0)
            for (uint32_t j = 0; j < kPage; j += 8)
                _mm256_storeu_ps(scale + j, load_halves(parts.scales + i / kKvBlock * kPage + j));
        if (n_v - i >= 16) {
            weigh<kQ, 2, kType>(parts.data, scale, n_v, queries, p, i, begin, end);
            i += 16;
        } else if (n_v - i >= 8) {
            weigh<kQ, 1, kType>(parts.data, scale, n_v, queries, p, i, begin, end);
            i += 8;
        } else {
            weigh_one<kQ, kType>(parts.data, scale, n_v, queries, p, i, begin, end);
            ++i;
        }
    }
}

#include "kernels/attention_groups.inc"

}  // namespace

void fill_avx2_operators(Kernels& table) {
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
