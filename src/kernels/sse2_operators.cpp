// SSE2, beside the quantised matrices of sse2.cpp: float matrices, activation quantisation, norm,
// activation function and attention. Halves are converted by integer operations, as in half.h.
// Loops that a compiler vectorises by itself are inherited from generic.cpp.
#include <emmintrin.h>

#include <cstring>

#include "base/math.h"
#include "kernels/half.h"
#include "kernels/levels.h"

namespace picolm {
namespace {

#include "kernels/sse2_common.inc"

// 32 lanes: i + 16, i + 8, i + 4, then tree_sum.
float tree_sum32(const VecF v[8]) {
    const VecF a = _mm_add_ps(_mm_add_ps(v[0], v[4]), _mm_add_ps(v[2], v[6]));
    const VecF b = _mm_add_ps(_mm_add_ps(v[1], v[5]), _mm_add_ps(v[3], v[7]));
    return tree_sum(_mm_add_ps(a, b));
}

// lane[i mod 32] += x[i] * y[i]; n counts from a multiple of 32.
void accumulate(VecF lane[8], const float* x, const float* y, uint32_t n) {
    VecF acc[8];
    for (int v = 0; v < 8; ++v) acc[v] = lane[v];
    uint32_t i = 0;
    for (; i + 32 <= n; i += 32)
        for (uint32_t v = 0; v < 8; ++v)
            acc[v] = _mm_add_ps(
                acc[v], _mm_mul_ps(_mm_loadu_ps(x + i + 4 * v), _mm_loadu_ps(y + i + 4 * v)));
    for (int v = 0; v < 8; ++v) lane[v] = acc[v];
    if (i == n) return;
    float rest[32];
    std::memcpy(rest, acc, sizeof rest);
    for (uint32_t k = 0; i + k < n; ++k) rest[k] = rest[k] + x[i + k] * y[i + k];
    std::memcpy(lane, rest, sizeof rest);
}

// ---- float weights, widened once for a group of tokens

struct F32 {
    static constexpr size_t kBytes = 4;
    static void widen(const uint8_t* p, uint32_t n, float* out) {
        std::memcpy(out, p, n * sizeof(float));
    }
};
struct F16 {
    static constexpr size_t kBytes = 2;
    static void widen(const uint8_t* p, uint32_t n, float* out) {
        uint32_t i = 0;
        for (; i + 8 <= n; i += 8) halves_to_floats(p + 2 * i, out + i);
        for (; i < n; ++i) {
            uint16_t half;
            std::memcpy(&half, p + 2 * i, sizeof half);
            out[i] = f16_to_f32(half);
        }
    }
};
struct BF16 {
    static constexpr size_t kBytes = 2;
    static void widen(const uint8_t* p, uint32_t n, float* out) {
        const Vec zero = _mm_setzero_si128();
        uint32_t i = 0;
        for (; i + 8 <= n; i += 8) {
            const Vec v = load(p + 2 * i);
            store(out + i, _mm_unpacklo_epi16(zero, v));
            store(out + i + 4, _mm_unpackhi_epi16(zero, v));
        }
        for (; i < n; ++i) {
            uint16_t brain;
            std::memcpy(&brain, p + 2 * i, sizeof brain);
            out[i] = bf16_to_f32(brain);
        }
    }
};

template <class Format>
void mat_float(const MatArgs& a, const float* x, size_t x_stride) {
    constexpr uint32_t kChunk = 512;
    constexpr uint32_t kGroup = 8;
    for (uint32_t r = 0; r < a.n_rows; ++r) {
        const uint8_t* row = a.w + r * a.row_bytes;
        for (uint32_t t0 = 0; t0 < a.n_tok; t0 += kGroup) {
            const uint32_t n_tok = a.n_tok - t0 < kGroup ? a.n_tok - t0 : kGroup;
            VecF acc[kGroup][8];
            std::memset(acc, 0, sizeof acc);
            for (uint32_t i = 0; i < a.n_in; i += kChunk) {
                const uint32_t n = a.n_in - i < kChunk ? a.n_in - i : kChunk;
                float w[kChunk];
                Format::widen(row + i * Format::kBytes, n, w);
                for (uint32_t t = 0; t < n_tok; ++t)
                    accumulate(acc[t], w, x + (t0 + t) * x_stride + i, n);
            }
            for (uint32_t t = 0; t < n_tok; ++t)
                a.y[(t0 + t) * a.y_stride + r] = tree_sum32(acc[t]);
        }
    }
}

// ---- operators

constexpr int32_t kInfinityBits = 0x7f800000;
constexpr int32_t kTinyBits = 0x0f800000;

// n: a multiple of 32.
bool quantize_group(const float* x, uint32_t n, int8_t* q, float* d) {
    Vec largest = _mm_setzero_si128();
    for (uint32_t i = 0; i < n; i += 4) {
        const Vec magnitude = _mm_and_si128(load(x + i), _mm_set1_epi32(0x7fffffff));
        largest = select(_mm_cmpgt_epi32(magnitude, largest), magnitude, largest);
    }
    int32_t lane[4], bits = 0;
    store(lane, largest);
    for (const int32_t each : lane) bits = each > bits ? each : bits;
    if (bits >= kInfinityBits) return false;
    if (bits < kTinyBits) {
        std::memset(q, 0, n);
        *d = 0.0f;
        return true;
    }
    const float top = bits_to_f32(static_cast<uint32_t>(bits));
    const VecF inverse = _mm_set1_ps(127.0f / top);
    for (uint32_t i = 0; i < n; i += 16) {
        Vec v[4];
        for (uint32_t k = 0; k < 4; ++k)
            v[k] = _mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(x + i + 4 * k), inverse));
        store(q + i, _mm_packs_epi16(_mm_packs_epi32(v[0], v[1]), _mm_packs_epi32(v[2], v[3])));
    }
    *d = top / 127.0f;
    return true;
}

PICOLM_INLINE void fill_sums(ActBlock& y) {
    const Vec bias = _mm_set1_epi8(-128);
    for (int g = 0; g < 16; ++g) {
        // Plus 128 the bytes are unsigned, and their distance from zero is their sum.
        const Vec sums = _mm_sad_epu8(_mm_xor_si128(load(y.q + 16 * g), bias), _mm_setzero_si128());
        const int sum = _mm_cvtsi128_si32(sums) + _mm_extract_epi16(sums, 4);
        y.sums16[g] = static_cast<int16_t>(sum - 16 * 128);
    }
    for (int g = 0; g < 8; ++g)
        y.sums32[g] = static_cast<int16_t>(y.sums16[2 * g] + y.sums16[2 * g + 1]);
}

#include "kernels/quantize_rows.inc"

VecF exp4(VecF x) {
    using namespace exp_f32_constants;
    const VecF valid = _mm_cmpge_ps(x, _mm_set1_ps(kLowest));
    x = _mm_min_ps(x, _mm_set1_ps(kHighest));
    const VecF round = _mm_set1_ps(kRound);
    const VecF n = _mm_sub_ps(_mm_add_ps(_mm_mul_ps(x, _mm_set1_ps(kLog2E)), round), round);
    const VecF r = _mm_sub_ps(_mm_sub_ps(x, _mm_mul_ps(n, _mm_set1_ps(kLn2High))),
                              _mm_mul_ps(n, _mm_set1_ps(kLn2Low)));
    VecF p = _mm_set1_ps(kC7);
    for (const float c : {kC6, kC5, kC4, kC3, kC2})
        p = _mm_add_ps(_mm_mul_ps(p, r), _mm_set1_ps(c));
    p = _mm_add_ps(_mm_add_ps(_mm_mul_ps(_mm_mul_ps(p, r), r), r), _mm_set1_ps(1.0f));
    const Vec exponent = _mm_slli_epi32(_mm_add_epi32(_mm_cvtps_epi32(n), _mm_set1_epi32(127)), 23);
    return _mm_and_ps(_mm_mul_ps(p, _mm_castsi128_ps(exponent)), valid);
}

bool rms_norm(const float* x, const float* w, uint32_t n, float eps, float* y) {
    VecF acc[8];
    std::memset(acc, 0, sizeof acc);
    accumulate(acc, x, x, n);
    const float sum = tree_sum32(acc);
    if (!(sum < __builtin_inff())) return false;
    const float factor = 1.0f / __builtin_sqrtf(sum / static_cast<float>(n) + eps);
    for (uint32_t i = 0; i < n; ++i) y[i] = (x[i] * factor) * w[i];
    return true;
}

VecF swiglu4(VecF x, VecF up) {
    const VecF one = _mm_set1_ps(1.0f);
    const VecF e = exp4(_mm_or_ps(x, _mm_set1_ps(-0.0f)));
    const VecF positive = _mm_cmpge_ps(x, _mm_setzero_ps());
    const VecF top = _mm_or_ps(_mm_and_ps(positive, one), _mm_andnot_ps(positive, e));
    return _mm_mul_ps(_mm_mul_ps(x, _mm_div_ps(top, _mm_add_ps(one, e))), up);
}

void swiglu(float* gate, const float* up, uint32_t n) {
    uint32_t i = 0;
    for (; i + 4 <= n; i += 4)
        _mm_storeu_ps(gate + i, swiglu4(_mm_loadu_ps(gate + i), _mm_loadu_ps(up + i)));
    if (i == n) return;
    float g[4] = {}, u[4] = {};
    std::memcpy(g, gate + i, (n - i) * sizeof(float));
    std::memcpy(u, up + i, (n - i) * sizeof(float));
    _mm_storeu_ps(g, swiglu4(_mm_loadu_ps(g), _mm_loadu_ps(u)));
    std::memcpy(gate + i, g, (n - i) * sizeof(float));
}

// ---- keys and values

// False when one of 32 values is not finite.
bool range32(const float* x, float* low, float* high) {
    const VecF sign = _mm_set1_ps(-0.0f), infinity = _mm_set1_ps(__builtin_inff());
    VecF least = _mm_loadu_ps(x), most = least, bad = _mm_setzero_ps();
    for (uint32_t i = 0; i < kKvBlock; i += 4) {
        const VecF v = _mm_loadu_ps(x + i);
        least = _mm_min_ps(least, v);
        most = _mm_max_ps(most, v);
        bad = _mm_or_ps(bad, _mm_cmpnlt_ps(_mm_andnot_ps(sign, v), infinity));
    }
    float lows[4], highs[4];
    _mm_storeu_ps(lows, least);
    _mm_storeu_ps(highs, most);
    *low = lows[0];
    *high = highs[0];
    for (int i = 1; i < 4; ++i) {
        *low = lows[i] < *low ? lows[i] : *low;
        *high = highs[i] > *high ? highs[i] : *high;
    }
    return _mm_movemask_ps(bad) == 0;
}

void round32(const float* x, float inverse, float lowest, float highest, int8_t* q) {
    const VecF factor = _mm_set1_ps(inverse);
    const VecF low = _mm_set1_ps(lowest), high = _mm_set1_ps(highest);
    for (uint32_t i = 0; i < kKvBlock; i += 16) {
        Vec v[4];
        for (uint32_t k = 0; k < 4; ++k) {
            const VecF scaled = _mm_mul_ps(_mm_loadu_ps(x + i + 4 * k), factor);
            v[k] = _mm_cvtps_epi32(_mm_min_ps(_mm_max_ps(scaled, low), high));
        }
        store(q + i, _mm_packs_epi16(_mm_packs_epi32(v[0], v[1]), _mm_packs_epi32(v[2], v[3])));
    }
}

#include "kernels/quantize_kv.inc"

// ---- attention: sixteen columns of K (slots) or V (dimensions) at a time, widened for all queries

constexpr uint32_t kColumns = 16;

PICOLM_INLINE void halves16(const uint16_t* halves, float* out) {
    halves_to_floats(halves, out);
    halves_to_floats(halves + 8, out + 8);
}
// out = scale * q; scale has one value for each of the sixteen or, kSame, one for all.
template <bool kSame>
PICOLM_INLINE void bytes16(Vec bytes, const float* scale, float* out) {
    Vec words[2];
    widen_signed(bytes, words);
    for (int w = 0; w < 2; ++w) {
        const Vec low = _mm_srai_epi32(_mm_unpacklo_epi16(words[w], words[w]), 16);
        const Vec high = _mm_srai_epi32(_mm_unpackhi_epi16(words[w], words[w]), 16);
        const VecF f0 = kSame ? _mm_set1_ps(*scale) : _mm_loadu_ps(scale + 8 * w);
        const VecF f1 = kSame ? f0 : _mm_loadu_ps(scale + 8 * w + 4);
        _mm_storeu_ps(out + 8 * w, _mm_mul_ps(f0, _mm_cvtepi32_ps(low)));
        _mm_storeu_ps(out + 8 * w + 4, _mm_mul_ps(f1, _mm_cvtepi32_ps(high)));
    }
}
PICOLM_INLINE Vec low_nibbles(Vec pairs) {
    return _mm_sub_epi8(_mm_and_si128(pairs, _mm_set1_epi8(15)), _mm_set1_epi8(8));
}
PICOLM_INLINE Vec high_nibbles(Vec pairs) {
    return low_nibbles(_mm_srli_epi16(pairs, 4));
}

// n dimensions of K from d on, at sixteen slots from j on. d is a multiple of 32.
template <KvType kType>
void widen_k(const KvParts& parts, uint32_t d, uint32_t n, uint32_t j, float (*out)[kColumns]) {
    float scale[kColumns] = {};
    for (uint32_t i = 0; i < n; ++i, ++d) {
        if (kType != KvType::f16 && i % kKvBlock == 0)
            halves16(parts.scales + d / kKvBlock * kPage + j, scale);
        if constexpr (kType == KvType::f16)
            halves16(reinterpret_cast<const uint16_t*>(parts.data) + d * kPage + j, out[i]);
        if constexpr (kType == KvType::q8_0)
            bytes16<false>(load(parts.data + d * kPage + j), scale, out[i]);
        if constexpr (kType == KvType::q4_0) {
            const Vec pairs = load(parts.data + d / 2 * kPage + j);
            bytes16<false>(i % 2 == 0 ? low_nibbles(pairs) : high_nibbles(pairs), scale, out[i]);
        }
    }
}

// All slots of V, n <= 16 dimensions from d on, a multiple of 16; columns behind them become zeros.
template <KvType kType>
void widen_v(const KvParts& parts, uint32_t n_v, uint32_t d, uint32_t n, float (*out)[kColumns]) {
    const uint32_t row_bytes = kv_data_bytes(kType, n_v), n_bytes = kv_data_bytes(kType, n);
    const uint8_t* data = parts.data + kv_data_bytes(kType, d);
    float scale[kPage];
    for (uint32_t j = 0; kType != KvType::f16 && j < kPage; j += 16)
        halves16(parts.scales + d / kKvBlock * kPage + j, scale + j);
    for (uint32_t j = 0; j < kPage; ++j, data += row_bytes) {
        uint8_t padded[2 * kColumns] = {};
        const uint8_t* row = data;
        if (n_bytes < kv_data_bytes(kType, kColumns)) {
            std::memcpy(padded, data, n_bytes);
            row = padded;
        }
        if constexpr (kType == KvType::f16)
            halves16(reinterpret_cast<const uint16_t*>(row), out[j]);
        if constexpr (kType == KvType::q8_0) bytes16<true>(load(row), scale + j, out[j]);
        if constexpr (kType == KvType::q4_0) {
            const Vec pairs = _mm_loadl_epi64(reinterpret_cast<const Vec*>(row));
            bytes16<true>(_mm_unpacklo_epi8(low_nibbles(pairs), high_nibbles(pairs)), scale + j,
                          out[j]);
        }
    }
}

// sum[c] += factor[i] * rows[i][c], i in order.
PICOLM_INLINE void weigh(float* sum, const float* factor, const float (*rows)[kColumns],
                         uint32_t n) {
    VecF acc[4];
    for (int v = 0; v < 4; ++v) acc[v] = _mm_loadu_ps(sum + 4 * v);
    for (uint32_t i = 0; i < n; ++i) {
        const VecF f = _mm_set1_ps(factor[i]);
        for (int v = 0; v < 4; ++v)
            acc[v] = _mm_add_ps(acc[v], _mm_mul_ps(f, _mm_loadu_ps(rows[i] + 4 * v)));
    }
    for (int v = 0; v < 4; ++v) _mm_storeu_ps(sum + 4 * v, acc[v]);
}

constexpr uint32_t kQueryGroup = 16;

// p[query][slot] = sum over d, in order, of q[d] * k[d][slot].
template <KvType kType>
void scores(const AttnPage& page, uint32_t n_k, const AttnQuery* queries, uint32_t n_q,
            float (*p)[kPage]) {
    constexpr uint32_t kRows = 64;
    const KvParts parts = kv_parts(page.k, kType, n_k);
    std::memset(p, 0, n_q * sizeof p[0]);
    for (uint32_t j = 0; j < kPage; j += kColumns)
        for (uint32_t d = 0; d < n_k; d += kRows) {
            const uint32_t n = n_k - d < kRows ? n_k - d : kRows;
            float k[kRows][kColumns];
            widen_k<kType>(parts, d, n, j, k);
            for (uint32_t i = 0; i < n_q; ++i) weigh(p[i] + j, queries[i].q + d, k, n);
        }
}

// Turns scores into weights; updates m and l; gives the factor for what was summed before.
float soften(AttnQuery& query, float* p) {
    float m = query.m;
    for (uint32_t j = query.first; j < query.end; ++j) m = p[j] > m ? p[j] : m;
    const Vec first = _mm_set1_epi32(static_cast<int>(query.first) - 1);
    const Vec end = _mm_set1_epi32(static_cast<int>(query.end));
    VecF sum[2] = {_mm_setzero_ps(), _mm_setzero_ps()};
    for (int j = 0; j < kPage; j += 4) {
        const Vec slot = _mm_add_epi32(_mm_setr_epi32(0, 1, 2, 3), _mm_set1_epi32(j));
        const Vec visible = _mm_and_si128(_mm_cmpgt_epi32(slot, first), _mm_cmpgt_epi32(end, slot));
        const VecF e = exp4(_mm_sub_ps(_mm_loadu_ps(p + j), _mm_set1_ps(m)));
        const VecF kept = _mm_and_ps(e, _mm_castsi128_ps(visible));
        _mm_storeu_ps(p + j, kept);
        sum[j / 4 % 2] = _mm_add_ps(sum[j / 4 % 2], kept);
    }
    const float keep = exp_f32(query.m - m);
    query.m = m;
    query.l = query.l * keep + tree_sum(_mm_add_ps(sum[0], sum[1]));
    return keep;
}

template <KvType kType>
void weigh_values(const AttnPage& page, uint32_t n_v, AttnQuery* queries, uint32_t n_q,
                  const float* keep, const float (*p)[kPage]) {
    const KvParts parts = kv_parts(page.v, kType, n_v);
    for (uint32_t d = 0; d < n_v; d += kColumns) {
        const uint32_t n = n_v - d < kColumns ? n_v - d : kColumns;
        float v[kPage][kColumns];
        widen_v<kType>(parts, n_v, d, n, v);
        for (uint32_t i = 0; i < n_q; ++i) {
            const AttnQuery& query = queries[i];
            float sum[kColumns] = {};
            for (uint32_t c = 0; c < n; ++c) sum[c] = query.o[d + c] * keep[i];
            weigh(sum, p[i] + query.first, v + query.first, query.end - query.first);
            std::memcpy(query.o + d, sum, n * sizeof(float));
        }
    }
}

void attn_group(const AttnPage& page, uint32_t n_k, uint32_t n_v, AttnQuery* queries,
                uint32_t n_q) {
    float p[kQueryGroup][kPage], keep[kQueryGroup];
    switch (page.types.k) {
        case KvType::f16:
            scores<KvType::f16>(page, n_k, queries, n_q, p);
            break;
        case KvType::q8_0:
            scores<KvType::q8_0>(page, n_k, queries, n_q, p);
            break;
        case KvType::q4_0:
            scores<KvType::q4_0>(page, n_k, queries, n_q, p);
            break;
    }
    for (uint32_t i = 0; i < n_q && page.types.k != KvType::f16; ++i) add_base_score(p[i]);
    for (uint32_t i = 0; i < n_q; ++i) keep[i] = soften(queries[i], p[i]);
    switch (page.types.v) {
        case KvType::f16:
            return weigh_values<KvType::f16>(page, n_v, queries, n_q, keep, p);
        case KvType::q8_0:
            return weigh_values<KvType::q8_0>(page, n_v, queries, n_q, keep, p);
        case KvType::q4_0:
            return weigh_values<KvType::q4_0>(page, n_v, queries, n_q, keep, p);
    }
}

void attn_page(const AttnPage& page, uint32_t n_k, uint32_t n_v, AttnQuery* queries, uint32_t n_q) {
    for (uint32_t i = 0; i < n_q; i += kQueryGroup)
        attn_group(page, n_k, n_v, queries + i, n_q - i < kQueryGroup ? n_q - i : kQueryGroup);
}

}  // namespace

void fill_sse2_operators(Kernels& table) {
    table.mat_float[static_cast<size_t>(TensorType::f32)] = mat_float<F32>;
    table.mat_float[static_cast<size_t>(TensorType::f16)] = mat_float<F16>;
    table.mat_float[static_cast<size_t>(TensorType::bf16)] = mat_float<BF16>;
    table.quantize_q256 = quantize_q256;
    table.quantize_q32 = quantize_q32;
    table.rms_norm = rms_norm;
    table.swiglu = swiglu;
    table.quantize_kv = quantize_kv;
    table.attn_page = attn_page;
}

}  // namespace picolm
