// The specification: portable loops that define every result, in the order that docs/NUMERICS.md
// writes down. They are shaped so that a compiler vectorises them (fixed lanes, integer inner
// loops); no other level may differ by a bit.
#include <cmath>
#include <cstring>

#include "base/math.h"
#include "kernels/blocks.h"
#include "kernels/half.h"
#include "kernels/levels.h"

namespace picolm {
namespace {

constexpr int kLanes = 32;

// The fixed tree of every float reduction: the upper half is added to the lower until one is left.
template <int kCount>
float tree_sum(float* lane) {
    for (int half = kCount / 2; half >= 1; half /= 2)
        for (int i = 0; i < half; ++i) lane[i] = lane[i] + lane[i + half];
    return lane[0];
}

// ---- activations

float round_to_even(float x) {  // |x| < 2^22
    return (x + exp_f32_constants::kRound) - exp_f32_constants::kRound;
}

// The largest |x| as bits: their order as integers is that of the magnitudes, NaN above infinity.
uint32_t max_magnitude(const float* x, uint32_t n) {
    uint32_t largest = 0;
    for (uint32_t i = 0; i < n; ++i) {
        uint32_t bits;
        std::memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7fffffffu;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

constexpr uint32_t kInfinityBits = 0x7f800000u;
constexpr uint32_t kTinyBits = 0x0f800000u;  // 2^-96: below it a block counts as zero

// n values share one scale. False when one of them is not finite.
bool quantize_group(const float* x, uint32_t n, int8_t* q, float* d) {
    const uint32_t bits = max_magnitude(x, n);
    if (bits >= kInfinityBits) return false;
    if (bits < kTinyBits) {
        std::memset(q, 0, n);
        *d = 0.0f;
        return true;
    }
    const float largest = bits_to_f32(bits);
    const float inverse = 127.0f / largest;
    for (uint32_t i = 0; i < n; ++i)
        q[i] = static_cast<int8_t>(static_cast<int32_t>(round_to_even(x[i] * inverse)));
    *d = largest / 127.0f;
    return true;
}

[[gnu::always_inline]] inline void fill_sums(ActBlock& y) {
    for (int g = 0; g < 16; ++g) {
        int sum = 0;
        for (int i = 0; i < 16; ++i) sum += y.q[16 * g + i];
        y.sums16[g] = static_cast<int16_t>(sum);
    }
    for (int g = 0; g < 8; ++g)
        y.sums32[g] = static_cast<int16_t>(y.sums16[2 * g] + y.sums16[2 * g + 1]);
}

#include "kernels/quantize_rows.inc"

// ---- keys and values

// The smallest and the largest of 32. False when one of them is not finite.
bool range32(const float* x, float* low, float* high) {
    *low = *high = x[0];
    for (uint32_t i = 1; i < kKvBlock; ++i) {
        *low = x[i] < *low ? x[i] : *low;
        *high = x[i] > *high ? x[i] : *high;
    }
    return max_magnitude(x, kKvBlock) < kInfinityBits;
}

void round32(const float* x, float inverse, float lowest, float highest, int8_t* q) {
    for (uint32_t i = 0; i < kKvBlock; ++i) {
        const float rounded = round_to_even(x[i] * inverse);
        const float kept = rounded < lowest ? lowest : rounded > highest ? highest : rounded;
        q[i] = static_cast<int8_t>(static_cast<int32_t>(kept));
    }
}

#include "kernels/quantize_kv.inc"

// ---- K-quants: one float step per 256 weights

// A block brought to integers: weight = d * scale * q [- dmin * min], scales per kSub weights.
struct Integers {
    int8_t q[kQK];
    int16_t scale[16];
    int16_t min[16];
    float d;
    float dmin;
};

int bits2(const uint8_t* bytes, int half, int k, int l) {
    return (bytes[32 * half + l] >> (2 * k)) & 3;
}

struct Q2K {
    using Block = BlockQ2_K;
    static constexpr int kSub = 16;
    static constexpr bool kHasMin = true;
    static void unpack(const Block& b, Integers& out) {
        for (int g = 0; g < 8; ++g)
            for (int l = 0; l < 32; ++l)
                out.q[32 * g + l] = static_cast<int8_t>(bits2(b.qs, g / 4, g % 4, l));
        for (int s = 0; s < 16; ++s) {
            out.scale[s] = b.scales[s] & 15;
            out.min[s] = b.scales[s] >> 4;
        }
        out.d = f16_to_f32(b.d);
        out.dmin = f16_to_f32(b.dmin);
    }
};

struct Q3K {
    using Block = BlockQ3_K;
    static constexpr int kSub = 16;
    static constexpr bool kHasMin = false;
    static void unpack(const Block& b, Integers& out) {
        for (int g = 0; g < 8; ++g)
            for (int l = 0; l < 32; ++l) {
                const int high = (b.hmask[l] >> g) & 1;
                out.q[32 * g + l] =
                    static_cast<int8_t>(bits2(b.qs, g / 4, g % 4, l) + 4 * high - 4);
            }
        int8_t scales[16];
        unpack_q3_k_scales(b.scales, scales);
        for (int s = 0; s < 16; ++s) out.scale[s] = scales[s];
        out.d = f16_to_f32(b.d);
    }
};

void unpack_scales_and_mins(const uint8_t* packed, Integers& out) {
    uint8_t scales[8], mins[8];
    unpack_q4_k_scales(packed, scales, mins);
    for (int s = 0; s < 8; ++s) {
        out.scale[s] = scales[s];
        out.min[s] = mins[s];
    }
}

struct Q4K {
    using Block = BlockQ4_K;
    static constexpr int kSub = 32;
    static constexpr bool kHasMin = true;
    static void unpack(const Block& b, Integers& out) {
        for (int k = 0; k < 4; ++k)
            for (int l = 0; l < 32; ++l) {
                out.q[64 * k + l] = static_cast<int8_t>(b.qs[32 * k + l] & 15);
                out.q[64 * k + 32 + l] = static_cast<int8_t>(b.qs[32 * k + l] >> 4);
            }
        unpack_scales_and_mins(b.scales, out);
        out.d = f16_to_f32(b.d);
        out.dmin = f16_to_f32(b.dmin);
    }
};

struct Q5K {
    using Block = BlockQ5_K;
    static constexpr int kSub = 32;
    static constexpr bool kHasMin = true;
    static void unpack(const Block& b, Integers& out) {
        for (int k = 0; k < 4; ++k)
            for (int l = 0; l < 32; ++l) {
                const int low = ((b.qh[l] >> (2 * k)) & 1) * 16;
                const int high = ((b.qh[l] >> (2 * k + 1)) & 1) * 16;
                out.q[64 * k + l] = static_cast<int8_t>((b.qs[32 * k + l] & 15) + low);
                out.q[64 * k + 32 + l] = static_cast<int8_t>((b.qs[32 * k + l] >> 4) + high);
            }
        unpack_scales_and_mins(b.scales, out);
        out.d = f16_to_f32(b.d);
        out.dmin = f16_to_f32(b.dmin);
    }
};

struct Q6K {
    using Block = BlockQ6_K;
    static constexpr int kSub = 16;
    static constexpr bool kHasMin = false;
    static void unpack(const Block& b, Integers& out) {
        for (int g = 0; g < 8; ++g) {
            const int half = g / 4, k = g % 4;
            const uint8_t* lows = b.ql + 64 * half + 32 * (k % 2);
            for (int l = 0; l < 32; ++l) {
                const int low = (lows[l] >> (4 * (k / 2))) & 15;
                out.q[32 * g + l] = static_cast<int8_t>(low + 16 * bits2(b.qh, half, k, l) - 32);
            }
        }
        for (int s = 0; s < 16; ++s) out.scale[s] = b.scales[s];
        out.d = f16_to_f32(b.d);
    }
};

struct IQ4XS {
    using Block = BlockIQ4_XS;
    static constexpr int kSub = 32;
    static constexpr bool kHasMin = false;
    static void unpack(const Block& b, Integers& out) {
        int8_t scales[8];
        unpack_iq4_xs_scales(b.scales_h, b.scales_l, scales);
        for (int s = 0; s < 8; ++s) {
            out.scale[s] = scales[s];
            for (int l = 0; l < 16; ++l) {
                out.q[32 * s + l] = kIq4Levels[b.qs[16 * s + l] & 15];
                out.q[32 * s + 16 + l] = kIq4Levels[b.qs[16 * s + l] >> 4];
            }
        }
        out.d = f16_to_f32(b.d);
    }
};

int32_t dot(const int8_t* a, const int8_t* b, int n) {
    int32_t sum = 0;
    for (int i = 0; i < n; ++i) sum += a[i] * b[i];
    return sum;
}

// da * (d * S - dmin * M): the one float step of a 256-block.
template <class Format>
float block_term(const Integers& w, const ActBlock& x) {
    constexpr int kSub = Format::kSub;
    int32_t sum = 0, min_sum = 0;
    for (int s = 0; s < kQK / kSub; ++s)
        sum += w.scale[s] * dot(w.q + kSub * s, x.q + kSub * s, kSub);
    if (!Format::kHasMin) return x.d[0] * (w.d * static_cast<float>(sum));
    const int16_t* sums = kSub == 16 ? x.sums16 : x.sums32;
    for (int s = 0; s < kQK / kSub; ++s) min_sum += w.min[s] * sums[s];
    return x.d[0] * (w.d * static_cast<float>(sum) - w.dmin * static_cast<float>(min_sum));
}

template <class Format>
void mat_q256(const MatArgs& a, const ActBlock* x) {
    const uint32_t n_blocks = a.n_in / kQK;
    for (uint32_t r = 0; r < a.n_rows; ++r) {
        const auto* row = reinterpret_cast<const typename Format::Block*>(a.w + r * a.row_bytes);
        float acc[kMaxSmallBatch] = {};
        for (uint32_t b = 0; b < n_blocks; ++b) {
            Integers w;
            Format::unpack(row[b], w);
            for (uint32_t t = 0; t < a.n_tok; ++t)
                acc[t] = acc[t] + block_term<Format>(w, x[t * n_blocks + b]);
        }
        for (uint32_t t = 0; t < a.n_tok; ++t) a.y[t * a.y_stride + r] = acc[t];
    }
}

// ---- 32-element blocks: block i goes to accumulator i mod 8

struct Q4_0 {
    using Block = BlockQ4_0;
    static constexpr bool kHasMin = false;
    static void unpack(const Block& b, int8_t* q) {
        for (int l = 0; l < 16; ++l) {
            q[l] = static_cast<int8_t>((b.qs[l] & 15) - 8);
            q[l + 16] = static_cast<int8_t>((b.qs[l] >> 4) - 8);
        }
    }
};

struct Q4_1 {
    using Block = BlockQ4_1;
    static constexpr bool kHasMin = true;
    static void unpack(const Block& b, int8_t* q) {
        for (int l = 0; l < 16; ++l) {
            q[l] = static_cast<int8_t>(b.qs[l] & 15);
            q[l + 16] = static_cast<int8_t>(b.qs[l] >> 4);
        }
    }
};

void unpack_5bit(const uint8_t* qs, const uint8_t* qh, int offset, int8_t* q) {
    // Byte i of `bits` keeps bit i of qh[g]; what is not zero carries into bit 7, which becomes 16.
    uint8_t high[kQK32];
    for (int g = 0; g < 4; ++g) {
        const uint64_t bits = (qh[g] * 0x0101010101010101u) & 0x8040201008040201u;
        const uint64_t fifth = ((bits + 0x7f7f7f7f7f7f7f7fu) >> 3) & 0x1010101010101010u;
        std::memcpy(high + 8 * g, &fifth, sizeof fifth);
    }
    for (int l = 0; l < 16; ++l) {
        q[l] = static_cast<int8_t>((qs[l] & 15) + high[l] - offset);
        q[l + 16] = static_cast<int8_t>((qs[l] >> 4) + high[l + 16] - offset);
    }
}

struct Q5_0 {
    using Block = BlockQ5_0;
    static constexpr bool kHasMin = false;
    static void unpack(const Block& b, int8_t* q) { unpack_5bit(b.qs, b.qh, 16, q); }
};

struct Q5_1 {
    using Block = BlockQ5_1;
    static constexpr bool kHasMin = true;
    static void unpack(const Block& b, int8_t* q) { unpack_5bit(b.qs, b.qh, 0, q); }
};

struct Q8_0 {
    using Block = BlockQ8_0;
    static constexpr bool kHasMin = false;
    static void unpack(const Block& b, int8_t* q) { std::memcpy(q, b.qs, sizeof b.qs); }
};

struct IQ4NL {
    using Block = BlockIQ4_NL;
    static constexpr bool kHasMin = false;
    static void unpack(const Block& b, int8_t* q) {
        for (int l = 0; l < 16; ++l) {
            q[l] = kIq4Levels[b.qs[l] & 15];
            q[l + 16] = kIq4Levels[b.qs[l] >> 4];
        }
    }
};

template <class Format>
float offset_of(const typename Format::Block& block) {
    if constexpr (Format::kHasMin) return f16_to_f32(block.m);
    return 0.0f;
}

template <class Format>
void mat_q32(const MatArgs& a, const ActBlock* x) {
    const uint32_t n_blocks = a.n_in / kQK32;
    const size_t x_stride = act_blocks(a.n_in);
    for (uint32_t r = 0; r < a.n_rows; ++r) {
        const auto* row = reinterpret_cast<const typename Format::Block*>(a.w + r * a.row_bytes);
        float acc[kMaxSmallBatch][8] = {};
        for (uint32_t b = 0; b < n_blocks; ++b) {
            int8_t q[kQK32];
            Format::unpack(row[b], q);
            const float d = f16_to_f32(row[b].d);
            const float m = offset_of<Format>(row[b]);
            for (uint32_t t = 0; t < a.n_tok; ++t) {
                const ActBlock& in = x[t * x_stride + b / 8];
                float term = d * static_cast<float>(dot(q, in.q + 32 * (b % 8), 32));
                if (Format::kHasMin) term = term + m * static_cast<float>(in.sums32[b % 8]);
                acc[t][b % 8] = acc[t][b % 8] + in.d[b % 8] * term;
            }
        }
        for (uint32_t t = 0; t < a.n_tok; ++t) a.y[t * a.y_stride + r] = tree_sum<8>(acc[t]);
    }
}

// ---- float weights: element i goes to lane i mod 32

struct F32 {
    static constexpr size_t kBytes = 4;
    static float load(const uint8_t* p) {
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
    static float load(const uint8_t* p) { return f16_to_f32(load_u16(p)); }
};

struct BF16 {
    static constexpr size_t kBytes = 2;
    static float load(const uint8_t* p) { return bf16_to_f32(load_u16(p)); }
};

template <class Format>
void mat_float(const MatArgs& a, const float* x, size_t x_stride) {
    constexpr uint32_t kChunk = 512;
    constexpr uint32_t kGroup = 8;
    for (uint32_t r = 0; r < a.n_rows; ++r) {
        const uint8_t* row = a.w + r * a.row_bytes;
        for (uint32_t t0 = 0; t0 < a.n_tok; t0 += kGroup) {
            const uint32_t n_tok = a.n_tok - t0 < kGroup ? a.n_tok - t0 : kGroup;
            float acc[kGroup][kLanes] = {};
            for (uint32_t i0 = 0; i0 < a.n_in; i0 += kChunk) {
                const uint32_t n = a.n_in - i0 < kChunk ? a.n_in - i0 : kChunk;
                float w[kChunk];
                for (size_t i = 0; i < n; ++i) w[i] = Format::load(row + (i0 + i) * Format::kBytes);
                for (uint32_t t = 0; t < n_tok; ++t) {
                    const float* in = x + (t0 + t) * x_stride + i0;
                    uint32_t i = 0;
                    for (; i + kLanes <= n; i += kLanes)
                        for (uint32_t lane = 0; lane < kLanes; ++lane)
                            acc[t][lane] = acc[t][lane] + w[i + lane] * in[i + lane];
                    for (uint32_t lane = 0; i + lane < n; ++lane)
                        acc[t][lane] = acc[t][lane] + w[i + lane] * in[i + lane];
                }
            }
            for (uint32_t t = 0; t < n_tok; ++t)
                a.y[(t0 + t) * a.y_stride + r] = tree_sum<kLanes>(acc[t]);
        }
    }
}

// ---- operators

bool rms_norm(const float* x, const float* w, uint32_t n, float eps, float* y) {
    float acc[kLanes] = {};
    uint32_t first = 0;
    for (; first + kLanes <= n; first += kLanes)
        for (uint32_t i = 0; i < kLanes; ++i) acc[i] = acc[i] + x[first + i] * x[first + i];
    for (uint32_t i = 0; first + i < n; ++i) acc[i] = acc[i] + x[first + i] * x[first + i];
    const float sum = tree_sum<kLanes>(acc);
    if (!(sum < INFINITY)) return false;
    const float factor = 1.0f / std::sqrt(sum / static_cast<float>(n) + eps);
    for (uint32_t i = 0; i < n; ++i) y[i] = (x[i] * factor) * w[i];
    return true;
}

void add(float* x, const float* y, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) x[i] = x[i] + y[i];
}

void scale(float* x, float factor, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) x[i] = x[i] * factor;
}

void swiglu(float* gate, const float* up, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) {
        const float x = gate[i];
        const float e = exp_f32(-std::fabs(x));
        const float sigmoid = (x >= 0.0f ? 1.0f : e) / (1.0f + e);
        gate[i] = (x * sigmoid) * up[i];
    }
}

void rope_norm(float* x, const float* cos, const float* sin, uint32_t n) {
    for (uint32_t i = 0; i < n / 2; ++i) {
        const float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cos[i] - b * sin[i];
        x[2 * i + 1] = a * sin[i] + b * cos[i];
    }
}

void to_f16(const float* x, uint16_t* y, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) y[i] = f32_to_f16(x[i]);
}

// p = exp(p - m) of the visible slots, 0 elsewhere; m and l follow. Returns exp(old m - new m).
float soften(AttnQuery& query, float* p) {
    float m = query.m;
    for (uint32_t j = query.first; j < query.end; ++j) m = p[j] > m ? p[j] : m;
    for (uint32_t j = 0; j < kPage; ++j)
        p[j] = j >= query.first && j < query.end ? exp_f32(p[j] - m) : 0.0f;
    const float keep = exp_f32(query.m - m);
    float lane[8] = {};
    for (int j = 0; j < kPage; ++j) lane[j % 8] = lane[j % 8] + p[j];
    query.l = query.l * keep + tree_sum<8>(lane);
    query.m = m;
    return keep;
}

// Queries that share the conversion of a row of K or V.
constexpr uint32_t kQueryGroup = 8;

void halves_to_floats(const uint16_t* halves, float* out, uint32_t n) {
    for (uint32_t i = 0; i < n; ++i) out[i] = f16_to_f32(halves[i]);
}

// Dimension d of K, all slots. scale: [kPage] of the block of d.
template <KvType kType>
void widen_k(const uint8_t* data, uint32_t d, const float* scale, float* k) {
    if constexpr (kType == KvType::f16)
        return halves_to_floats(reinterpret_cast<const uint16_t*>(data) + d * kPage, k, kPage);
    if constexpr (kType == KvType::q8_0) {
        const auto* q = reinterpret_cast<const int8_t*>(data) + d * kPage;
        for (int j = 0; j < kPage; ++j) k[j] = scale[j] * static_cast<float>(q[j]);
    }
    if constexpr (kType == KvType::q4_0) {
        const uint8_t* pairs = data + d / 2 * kPage;
        const int shift = 4 * (d % 2);
        for (int j = 0; j < kPage; ++j)
            k[j] = scale[j] * static_cast<float>(((pairs[j] >> shift) & 15) - 8);
    }
}

// p[query][slot] = sum over d, in order, of q[d] * k[d][slot].
template <KvType kType>
void scores(const AttnPage& page, uint32_t n_k, const AttnQuery* queries, uint32_t n_q,
            float (*p)[kPage]) {
    const KvParts parts = kv_parts(page.k, kType, n_k);
    float scale[kPage];
    for (uint32_t d = 0; d < n_k; ++d) {
        if (kType != KvType::f16 && d % kKvBlock == 0)
            halves_to_floats(parts.scales + d / kKvBlock * kPage, scale, kPage);
        float k[kPage];
        widen_k<kType>(parts.data, d, scale, k);
        for (uint32_t i = 0; i < n_q; ++i) {
            const float q = queries[i].q[d];
            for (int j = 0; j < kPage; ++j) p[i][j] = p[i][j] + q * k[j];
        }
    }
}

// n dimensions from d0 on, a multiple of 64, of V at a slot.
template <KvType kType>
void widen_v(const KvParts& parts, uint32_t n_v, uint32_t slot, uint32_t d0, uint32_t n, float* v) {
    const uint8_t* row = parts.data + size_t{slot} * kv_data_bytes(kType, n_v);
    if constexpr (kType == KvType::f16)
        return halves_to_floats(reinterpret_cast<const uint16_t*>(row) + d0, v, n);
    for (uint32_t d = 0; d < n; d += kKvBlock) {
        const float scale = f16_to_f32(parts.scales[(d0 + d) / kKvBlock * kPage + slot]);
        const uint32_t end = n - d < kKvBlock ? n : d + kKvBlock;
        for (uint32_t i = d; i < end; ++i)
            v[i] = scale * static_cast<float>(kv_integer(kType, row, d0 + i));
    }
}

// o[d] += p[slot] * v[slot][d] for the visible slots in order.
template <KvType kType>
void weigh(const AttnPage& page, uint32_t n_v, AttnQuery* queries, uint32_t n_q,
           const float (*p)[kPage]) {
    constexpr uint32_t kWidth = 64;
    const KvParts parts = kv_parts(page.v, kType, n_v);
    for (uint32_t j = 0; j < kPage; ++j)
        for (uint32_t d0 = 0; d0 < n_v; d0 += kWidth) {
            const uint32_t n = n_v - d0 < kWidth ? n_v - d0 : kWidth;
            float v[kWidth];
            widen_v<kType>(parts, n_v, j, d0, n, v);
            for (uint32_t i = 0; i < n_q; ++i) {
                if (j < queries[i].first || j >= queries[i].end) continue;
                float* o = queries[i].o + d0;
                for (uint32_t d = 0; d < n; ++d) o[d] = o[d] + p[i][j] * v[d];
            }
        }
}

void attn_group(const AttnPage& page, uint32_t n_k, uint32_t n_v, AttnQuery* queries,
                uint32_t n_q) {
    float p[kQueryGroup][kPage] = {};
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
    for (uint32_t i = 0; i < n_q; ++i) scale(queries[i].o, soften(queries[i], p[i]), n_v);
    switch (page.types.v) {
        case KvType::f16:
            return weigh<KvType::f16>(page, n_v, queries, n_q, p);
        case KvType::q8_0:
            return weigh<KvType::q8_0>(page, n_v, queries, n_q, p);
        case KvType::q4_0:
            return weigh<KvType::q4_0>(page, n_v, queries, n_q, p);
    }
}

void attn_page(const AttnPage& page, uint32_t n_k, uint32_t n_v, AttnQuery* queries, uint32_t n_q) {
    for (uint32_t i = 0; i < n_q; i += kQueryGroup)
        attn_group(page, n_k, n_v, queries + i, n_q - i < kQueryGroup ? n_q - i : kQueryGroup);
}

}  // namespace

void fill_generic(Kernels& table) {
    table.quantize_q256 = quantize_q256;
    table.quantize_q32 = quantize_q32;
    const auto small = [&](TensorType type) -> MatSmall& {
        return table.mat_small[static_cast<size_t>(type)];
    };
    small(TensorType::q2_k) = mat_q256<Q2K>;
    small(TensorType::q3_k) = mat_q256<Q3K>;
    small(TensorType::q4_k) = mat_q256<Q4K>;
    small(TensorType::q5_k) = mat_q256<Q5K>;
    small(TensorType::q6_k) = mat_q256<Q6K>;
    small(TensorType::iq4_xs) = mat_q256<IQ4XS>;
    small(TensorType::q4_0) = mat_q32<Q4_0>;
    small(TensorType::q4_1) = mat_q32<Q4_1>;
    small(TensorType::q5_0) = mat_q32<Q5_0>;
    small(TensorType::q5_1) = mat_q32<Q5_1>;
    small(TensorType::q8_0) = mat_q32<Q8_0>;
    small(TensorType::iq4_nl) = mat_q32<IQ4NL>;
    table.mat_float[static_cast<size_t>(TensorType::f32)] = mat_float<F32>;
    table.mat_float[static_cast<size_t>(TensorType::f16)] = mat_float<F16>;
    table.mat_float[static_cast<size_t>(TensorType::bf16)] = mat_float<BF16>;
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
