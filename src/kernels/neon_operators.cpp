// AArch64, beside the quantised matrices of neon.cpp: float matrices, activation quantisation,
// norm, activation function, rotary embedding and attention.
#include <arm_neon.h>

#include <cstring>

#include "base/math.h"
#include "kernels/half.h"
#include "kernels/levels.h"

namespace picolm {
namespace {

#include "kernels/neon_common.inc"

PICOLM_INLINE Floats load(const float* p) {
    return vld1q_f32(p);
}
PICOLM_INLINE Floats multiply_add(Floats sum, Floats a, Floats b) {  // two roundings
    return vaddq_f32(sum, vmulq_f32(a, b));
}
PICOLM_INLINE float16x8_t load_halves(const uint16_t* p) {
    return vreinterpretq_f16_u16(vld1q_u16(p));
}
PICOLM_INLINE Floats low_half(float16x8_t h) {
    return vcvt_f32_f16(vget_low_f16(h));
}
PICOLM_INLINE Floats high_half(float16x8_t h) {
    return vcvt_high_f32_f16(h);
}
// Eight vectors are the 32 lanes: i + 16, i + 8, then the tree of eight.
PICOLM_INLINE float tree_sum32(const Floats v[8]) {
    Floats s[4];
    for (int i = 0; i < 4; ++i) s[i] = vaddq_f32(v[i], v[i + 4]);
    return tree_sum(vaddq_f32(s[0], s[2]), vaddq_f32(s[1], s[3]));
}

// ---- float weights

struct F32 {
    static constexpr size_t kBytes = 4;
    PICOLM_INLINE static void load8(const uint8_t* p, Floats out[2]) {
        out[0] = vreinterpretq_f32_u8(vld1q_u8(p));
        out[1] = vreinterpretq_f32_u8(vld1q_u8(p + 16));
    }
    PICOLM_INLINE static float load1(const uint8_t* p) {
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
    PICOLM_INLINE static void load8(const uint8_t* p, Floats out[2]) {
        const float16x8_t h = vreinterpretq_f16_u8(vld1q_u8(p));
        out[0] = low_half(h);
        out[1] = high_half(h);
    }
    PICOLM_INLINE static float load1(const uint8_t* p) { return f16_to_f32(load_u16(p)); }
};
struct BF16 {
    static constexpr size_t kBytes = 2;
    PICOLM_INLINE static void load8(const uint8_t* p, Floats out[2]) {
        const uint16x8_t h = vreinterpretq_u16_u8(vld1q_u8(p));
        out[0] = vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(h), 16));
        out[1] = vreinterpretq_f32_u32(vshll_high_n_u16(h, 16));
    }
    PICOLM_INLINE static float load1(const uint8_t* p) { return bf16_to_f32(load_u16(p)); }
};

template <class Format, uint32_t kR, uint32_t kT>
void float_block(const MatArgs& a, const float* x, size_t x_stride, uint32_t row, uint32_t token) {
    Floats acc[kR][kT][8];
    for (auto& rows : acc)
        for (auto& lanes : rows)
            for (Floats& each : lanes) each = vdupq_n_f32(0.0f);
    const uint8_t* w = a.w + row * a.row_bytes;
    const float* in = x + token * x_stride;
    uint32_t i = 0;
    for (; i + 32 <= a.n_in; i += 32)
        for (uint32_t v = 0; v < 4; ++v)
            for (uint32_t r = 0; r < kR; ++r) {
                const uint8_t* p = w + r * a.row_bytes + (i + 8 * v) * Format::kBytes;
                if (v == 0) __builtin_prefetch(p + 1024, 0, 3);
                Floats wv[2];
                Format::load8(p, wv);
                for (uint32_t t = 0; t < kT; ++t)
                    for (uint32_t h = 0; h < 2; ++h)
                        acc[r][t][2 * v + h] =
                            multiply_add(acc[r][t][2 * v + h], wv[h],
                                         load(in + t * x_stride + i + 8 * v + 4 * h));
            }
    for (uint32_t r = 0; r < kR; ++r)
        for (uint32_t t = 0; t < kT; ++t) {
            if (i < a.n_in) {
                float lane[32];
                for (int v = 0; v < 8; ++v) vst1q_f32(lane + 4 * v, acc[r][t][v]);
                for (uint32_t k = i; k < a.n_in; ++k)
                    lane[k - i] =
                        lane[k - i] + Format::load1(w + r * a.row_bytes + k * Format::kBytes) *
                                          in[t * x_stride + k];
                for (int v = 0; v < 8; ++v) acc[r][t][v] = load(lane + 4 * v);
            }
            a.y[(token + t) * a.y_stride + row + r] = tree_sum32(acc[r][t]);
        }
}

template <class Format>
void mat_float(const MatArgs& a, const float* x, size_t x_stride) {
    uint32_t r = 0;
    for (; a.n_tok == 1 && r + 2 <= a.n_rows; r += 2)
        float_block<Format, 2, 1>(a, x, x_stride, r, 0);
    for (; r < a.n_rows; ++r) {
        uint32_t t = 0;
        for (; t + 3 <= a.n_tok; t += 3) float_block<Format, 1, 3>(a, x, x_stride, r, t);
        for (; t + 2 <= a.n_tok; t += 2) float_block<Format, 1, 2>(a, x, x_stride, r, t);
        for (; t < a.n_tok; ++t) float_block<Format, 1, 1>(a, x, x_stride, r, t);
    }
}

// ---- activations

constexpr uint32_t kInfinityBits = 0x7f800000u;
constexpr uint32_t kTinyBits = 0x0f800000u;

// n: a multiple of 32.
bool quantize_group(const float* x, uint32_t n, int8_t* q, float* d) {
    uint32x4_t largest[2] = {vdupq_n_u32(0), vdupq_n_u32(0)};
    for (uint32_t i = 0; i < n; i += 8)
        for (uint32_t v = 0; v < 2; ++v)
            largest[v] =
                vmaxq_u32(largest[v], vreinterpretq_u32_f32(vabsq_f32(load(x + i + 4 * v))));
    const uint32_t bits = vmaxvq_u32(vmaxq_u32(largest[0], largest[1]));
    if (bits >= kInfinityBits) return false;
    if (bits < kTinyBits) {
        std::memset(q, 0, n);
        *d = 0.0f;
        return true;
    }
    const float top = bits_to_f32(bits);
    const float inverse = 127.0f / top;
    for (uint32_t i = 0; i < n; i += 16) {
        int16x4_t v[4];
        for (uint32_t k = 0; k < 4; ++k)
            v[k] = vmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(load(x + i + 4 * k), inverse)));
        vst1q_s8(q + i, vcombine_s8(vmovn_s16(vcombine_s16(v[0], v[1])),
                                    vmovn_s16(vcombine_s16(v[2], v[3]))));
    }
    *d = top / 127.0f;
    return true;
}

PICOLM_INLINE void fill_sums(ActBlock& y) {
    for (int g = 0; g < 8; ++g) {
        const int16_t low = vaddlvq_s8(load(y.q + 32 * g));
        const int16_t high = vaddlvq_s8(load(y.q + 32 * g + 16));
        y.sums16[2 * g] = low;
        y.sums16[2 * g + 1] = high;
        y.sums32[g] = static_cast<int16_t>(low + high);
    }
}

#include "kernels/quantize_rows.inc"

// ---- operators

PICOLM_INLINE Floats only(uint32x4_t mask, Floats v) {
    return vreinterpretq_f32_u32(vandq_u32(mask, vreinterpretq_u32_f32(v)));
}

PICOLM_INLINE Floats exp4(Floats x) {
    using namespace exp_f32_constants;
    const uint32x4_t valid = vcgeq_f32(x, vdupq_n_f32(kLowest));
    x = vminq_f32(x, vdupq_n_f32(kHighest));
    const Floats round = vdupq_n_f32(kRound);
    const Floats n = vsubq_f32(vaddq_f32(vmulq_n_f32(x, kLog2E), round), round);
    const Floats r = vsubq_f32(vsubq_f32(x, vmulq_n_f32(n, kLn2High)), vmulq_n_f32(n, kLn2Low));
    Floats p = vdupq_n_f32(kC7);
    for (const float c : {kC6, kC5, kC4, kC3, kC2}) p = multiply_add(vdupq_n_f32(c), p, r);
    p = vaddq_f32(vaddq_f32(vmulq_f32(vmulq_f32(p, r), r), r), vdupq_n_f32(1.0f));
    const Ints exponent = vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23);
    return only(valid, vmulq_f32(p, vreinterpretq_f32_s32(exponent)));
}

bool rms_norm(const float* x, const float* w, uint32_t n, float eps, float* y) {
    Floats acc[8];
    for (Floats& each : acc) each = vdupq_n_f32(0.0f);
    uint32_t i = 0;
    for (; i + 32 <= n; i += 32)
        for (uint32_t v = 0; v < 8; ++v) {
            const Floats in = load(x + i + 4 * v);
            acc[v] = multiply_add(acc[v], in, in);
        }
    if (i < n) {
        float lane[32];
        for (int v = 0; v < 8; ++v) vst1q_f32(lane + 4 * v, acc[v]);
        for (uint32_t k = i; k < n; ++k) lane[k - i] = lane[k - i] + x[k] * x[k];
        for (int v = 0; v < 8; ++v) acc[v] = load(lane + 4 * v);
    }
    const float sum = tree_sum32(acc);
    if (!(sum < __builtin_inff())) return false;
    const float factor = 1.0f / __builtin_sqrtf(sum / static_cast<float>(n) + eps);
    for (i = 0; i + 4 <= n; i += 4)
        vst1q_f32(y + i, vmulq_f32(vmulq_n_f32(load(x + i), factor), load(w + i)));
    for (; i < n; ++i) y[i] = (x[i] * factor) * w[i];
    return true;
}

void add(float* x, const float* y, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) x[i] = x[i] + y[i];
}

void scale(float* x, float factor, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) x[i] = x[i] * factor;
}

PICOLM_INLINE Floats swiglu4(Floats x, Floats up) {
    const Floats one = vdupq_n_f32(1.0f);
    const Floats e = exp4(vnegq_f32(vabsq_f32(x)));
    const Floats sigmoid = vdivq_f32(vbslq_f32(vcgezq_f32(x), one, e), vaddq_f32(one, e));
    return vmulq_f32(vmulq_f32(x, sigmoid), up);
}

void swiglu(float* gate, const float* up, uint32_t n) {
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {  // two at once: the chains are long
        const Floats a = swiglu4(load(gate + i), load(up + i));
        const Floats b = swiglu4(load(gate + i + 4), load(up + i + 4));
        vst1q_f32(gate + i, a);
        vst1q_f32(gate + i + 4, b);
    }
    for (; i < n; i += 4) {
        const uint32_t left = n - i < 4 ? n - i : 4;
        float g[4] = {}, u[4] = {};
        std::memcpy(g, gate + i, left * sizeof(float));
        std::memcpy(u, up + i, left * sizeof(float));
        vst1q_f32(g, swiglu4(load(g), load(u)));
        std::memcpy(gate + i, g, left * sizeof(float));
    }
}

void rope_norm(float* x, const float* cos, const float* sin, uint32_t n) {
    uint32_t i = 0;
    for (; i + 4 <= n / 2; i += 4) {
        const float32x4x2_t in = vld2q_f32(x + 2 * i);
        const Floats a = in.val[0], b = in.val[1], c = load(cos + i), s = load(sin + i);
        float32x4x2_t out;
        out.val[0] = vsubq_f32(vmulq_f32(a, c), vmulq_f32(b, s));
        out.val[1] = vaddq_f32(vmulq_f32(a, s), vmulq_f32(b, c));
        vst2q_f32(x + 2 * i, out);
    }
    for (; i < n / 2; ++i) {
        const float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cos[i] - b * sin[i];
        x[2 * i + 1] = a * sin[i] + b * cos[i];
    }
}

void to_f16(const float* x, uint16_t* y, uint32_t n) {
    uint32_t i = 0;
    for (; i + 4 <= n; i += 4) vst1_u16(y + i, vreinterpret_u16_f16(vcvt_f16_f32(load(x + i))));
    for (; i < n; ++i) y[i] = f32_to_f16(x[i]);
}

// ---- keys and values

// False when one of 32 values is not finite.
bool range32(const float* x, float* low, float* high) {
    Floats least = load(x), most = least;
    uint32x4_t largest = vdupq_n_u32(0);
    for (uint32_t i = 0; i < kKvBlock; i += 4) {
        const Floats v = load(x + i);
        least = vminq_f32(least, v);
        most = vmaxq_f32(most, v);
        largest = vmaxq_u32(largest, vreinterpretq_u32_f32(vabsq_f32(v)));
    }
    *low = vminvq_f32(least);
    *high = vmaxvq_f32(most);
    return vmaxvq_u32(largest) < kInfinityBits;
}

void round32(const float* x, float inverse, float lowest, float highest, int8_t* q) {
    const Floats low = vdupq_n_f32(lowest), high = vdupq_n_f32(highest);
    for (uint32_t i = 0; i < kKvBlock; i += 16) {
        int16x4_t v[4];
        for (uint32_t k = 0; k < 4; ++k) {
            const Floats scaled = vmulq_n_f32(load(x + i + 4 * k), inverse);
            v[k] = vmovn_s32(vcvtnq_s32_f32(vminq_f32(vmaxq_f32(scaled, low), high)));
        }
        vst1q_s8(q + i, vcombine_s8(vmovn_s16(vcombine_s16(v[0], v[1])),
                                    vmovn_s16(vcombine_s16(v[2], v[3]))));
    }
}

#include "kernels/quantize_kv.inc"

// ---- attention

// Eight integers to floats.
PICOLM_INLINE void bytes_to_floats(int8x8_t bytes, Floats out[2]) {
    const Words words = vmovl_s8(bytes);
    out[0] = to_float(vmovl_s16(vget_low_s16(words)));
    out[1] = to_float(vmovl_high_s16(words));
}
PICOLM_INLINE void halves_to_floats(const uint16_t* p, Floats out[2]) {
    const float16x8_t h = load_halves(p);
    out[0] = low_half(h);
    out[1] = high_half(h);
}
PICOLM_INLINE int8x8_t minus_8(uint8x8_t level) {
    return vreinterpret_s8_u8(vsub_u8(level, vdup_n_u8(8)));
}

// Dimension d of K at 8 slots from j on, without its scale. kOdd: d is odd.
template <KvType kType, bool kOdd>
PICOLM_INLINE void load_k(const uint8_t* data, uint32_t d, uint32_t j, Floats out[2]) {
    if constexpr (kType == KvType::f16)
        halves_to_floats(reinterpret_cast<const uint16_t*>(data) + d * kPage + j, out);
    if constexpr (kType == KvType::q8_0)
        bytes_to_floats(vreinterpret_s8_u8(vld1_u8(data + d * kPage + j)), out);
    if constexpr (kType == KvType::q4_0) {
        const uint8x8_t pairs = vld1_u8(data + d / 2 * kPage + j);
        bytes_to_floats(minus_8(kOdd ? vshr_n_u8(pairs, 4) : vand_u8(pairs, vdup_n_u8(15))), out);
    }
}

// Dimensions i to i + 7, i a multiple of 8, of V at one slot, without their scale.
template <KvType kType>
PICOLM_INLINE void load_v(const uint8_t* row, uint32_t i, Floats out[2]) {
    if constexpr (kType == KvType::f16)
        halves_to_floats(reinterpret_cast<const uint16_t*>(row) + i, out);
    if constexpr (kType == KvType::q8_0) bytes_to_floats(vreinterpret_s8_u8(vld1_u8(row + i)), out);
    if constexpr (kType == KvType::q4_0) {
        uint32_t four;
        std::memcpy(&four, row + i / 2, sizeof four);
        const uint8x8_t pairs = vreinterpret_u8_u32(vdup_n_u32(four));
        const uint8x8_t low = vand_u8(pairs, vdup_n_u8(15)), high = vshr_n_u8(pairs, 4);
        bytes_to_floats(minus_8(vzip1_u8(low, high)), out);
    }
}

// acc += q[d] * k[d] at 16 slots from j on.
template <uint32_t kQ, KvType kType, bool kOdd>
PICOLM_INLINE void add_scores(Floats acc[kQ][4], const AttnQuery* queries, const uint8_t* data,
                              const Floats scale[4], uint32_t d, uint32_t j) {
    Floats k[4];
    load_k<kType, kOdd>(data, d, j, k);
    load_k<kType, kOdd>(data, d, j + 8, k + 2);
    for (uint32_t v = 0; v < 4 && kType != KvType::f16; ++v) k[v] = vmulq_f32(k[v], scale[v]);
    for (uint32_t i = 0; i < kQ; ++i)
        for (uint32_t v = 0; v < 4; ++v)
            acc[i][v] = vaddq_f32(acc[i][v], vmulq_n_f32(k[v], queries[i].q[d]));
}

// p[query][slot] = sum over d, in order, of q[d] * k[d][slot].
template <uint32_t kQ, KvType kType>
void scores(const AttnPage& page, uint32_t n_k, const AttnQuery* queries, float (*p)[kPage]) {
    const KvParts parts = kv_parts(page.k, kType, n_k);
    for (uint32_t j = 0; j < kPage; j += 16) {
        Floats acc[kQ][4], scale[4];
        for (auto& row : acc)
            for (Floats& each : row) each = vdupq_n_f32(0.0f);
        for (uint32_t d = 0; d < n_k;) {
            if (kType != KvType::f16) {
                const uint16_t* scales = parts.scales + d / kKvBlock * kPage + j;
                halves_to_floats(scales, scale);
                halves_to_floats(scales + 8, scale + 2);
            }
            const uint32_t end = n_k - d < kKvBlock ? n_k : d + kKvBlock;
            for (; d + 2 <= end; d += 2) {
                add_scores<kQ, kType, false>(acc, queries, parts.data, scale, d, j);
                add_scores<kQ, kType, true>(acc, queries, parts.data, scale, d + 1, j);
            }
            for (; d < end; ++d)
                add_scores<kQ, kType, false>(acc, queries, parts.data, scale, d, j);
        }
        for (uint32_t i = 0; i < kQ; ++i)
            for (uint32_t v = 0; v < 4; ++v) vst1q_f32(p[i] + j + 4 * v, acc[i][v]);
    }
}

// Turns scores into weights; updates m and l; gives the factor for what was summed before.
float soften(AttnQuery& query, float* p) {
    float m = query.m;
    for (uint32_t j = query.first; j < query.end; ++j) m = p[j] > m ? p[j] : m;
    const uint32x4_t first = vdupq_n_u32(query.first), end = vdupq_n_u32(query.end);
    const uint32x4_t lanes = {0, 1, 2, 3};
    Floats sum[2] = {vdupq_n_f32(0.0f), vdupq_n_f32(0.0f)};
    for (uint32_t j = 0; j < kPage; j += 8)
        for (uint32_t v = 0; v < 2; ++v) {
            const uint32x4_t slot = vaddq_u32(lanes, vdupq_n_u32(j + 4 * v));
            const uint32x4_t visible = vandq_u32(vcgeq_u32(slot, first), vcltq_u32(slot, end));
            const Floats e = exp4(vsubq_f32(load(p + j + 4 * v), vdupq_n_f32(m)));
            const Floats kept = only(visible, e);
            vst1q_f32(p + j + 4 * v, kept);
            sum[v] = vaddq_f32(sum[v], kept);
        }
    const float keep = exp_f32(query.m - m);
    query.m = m;
    query.l = query.l * keep + tree_sum(sum[0], sum[1]);
    return keep;
}

#include "kernels/attention_rest.inc"

// o[i] += p[j] * v[j][i] for j in [begin, end), 8 * kV dimensions of one block from i on, kQ
// queries. scale: [kPage] of that block.
template <uint32_t kQ, uint32_t kV, KvType kType>
void weigh(const uint8_t* data, const float* scale, uint32_t n_v, AttnQuery* queries,
           const float (*p)[kPage], uint32_t i, uint32_t begin, uint32_t end) {
    Floats acc[kQ][2 * kV];
    for (uint32_t q = 0; q < kQ; ++q)
        for (uint32_t v = 0; v < 2 * kV; ++v) acc[q][v] = load(queries[q].o + i + 4 * v);
    const size_t row_bytes = kv_data_bytes(kType, n_v);
    for (uint32_t j = begin; j < end; ++j) {
        Floats in[2 * kV];
        for (uint32_t v = 0; v < kV; ++v)
            load_v<kType>(data + j * row_bytes, i + 8 * v, in + 2 * v);
        for (uint32_t v = 0; v < 2 * kV && kType != KvType::f16; ++v)
            in[v] = vmulq_n_f32(in[v], scale[j]);
        for (uint32_t q = 0; q < kQ; ++q)
            for (uint32_t v = 0; v < 2 * kV; ++v)
                acc[q][v] = vaddq_f32(acc[q][v], vmulq_n_f32(in[v], p[q][j]));
    }
    for (uint32_t q = 0; q < kQ; ++q)
        for (uint32_t v = 0; v < 2 * kV; ++v) vst1q_f32(queries[q].o + i + 4 * v, acc[q][v]);
}

template <uint32_t kQ, KvType kType>
void weigh_all(const AttnPage& page, uint32_t n_v, AttnQuery* queries, const float (*p)[kPage],
               uint32_t begin, uint32_t end) {
    const KvParts parts = kv_parts(page.v, kType, n_v);
    float scale[kPage];
    for (uint32_t i = 0; i < n_v;) {
        if (kType != KvType::f16 && i % kKvBlock == 0)
            for (uint32_t j = 0; j < kPage; j += 8) {
                Floats eight[2];
                halves_to_floats(parts.scales + i / kKvBlock * kPage + j, eight);
                vst1q_f32(scale + j, eight[0]);
                vst1q_f32(scale + j + 4, eight[1]);
            }
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

void fill_neon_operators(Kernels& table) {
    table.mat_float[static_cast<size_t>(TensorType::f32)] = mat_float<F32>;
    table.mat_float[static_cast<size_t>(TensorType::f16)] = mat_float<F16>;
    table.mat_float[static_cast<size_t>(TensorType::bf16)] = mat_float<BF16>;
    table.quantize_q256 = quantize_q256;
    table.quantize_q32 = quantize_q32;
    table.rms_norm = rms_norm;
    table.add = add;
    table.scale = scale;
    table.swiglu = swiglu;
    table.rope_norm = rope_norm;
    table.to_f16 = to_f16;
    table.quantize_kv = quantize_kv;
    table.attn_page = attn_page;
}

}  // namespace picolm
