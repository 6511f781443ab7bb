// quantize_row. Every scale is found by least squares over a few roundings of the block; the codes
// are then chosen against the scale as it is stored. Only + - * / and one rounding rule, so that
// the same floats give the same bytes on every machine. dequantize_row is in dequantize.cpp.
#include "kernels/quantize.h"

#include <array>
#include <cmath>
#include <cstring>

#include "kernels/blocks.h"
#include "kernels/half.h"

namespace picolm {
namespace {

// No format reaches 2^28, so what lies beyond saturates anyway, and squares stay far from infinity.
constexpr float kMaxMagnitude = 0x1p28f;
// Half of the smallest half: no scale can do better than all zeros for values below it.
constexpr float kTiny = 0x1p-25f;
constexpr float kMaxHalf = 65504.0f;

// A NaN becomes lo, so that the integer conversions below are always defined.
float clamp(float v, float lo, float hi) {
    v = v > lo ? v : lo;
    return v < hi ? v : hi;
}

// The integer in [lo, hi] nearest to v, ties to even, as a float. At 1.5 * 2^23 the last bit of a
// float is worth one, so the addition rounds; lo and hi are integers of at most 22 bits.
float nearest(float v, float lo, float hi) {
    constexpr float k_shift = 12582912.0f;
    return (clamp(v, lo, hi) + k_shift) - k_shift;
}

// What no half can hold saturates: the block then loses its largest values instead of becoming
// infinite.
uint16_t to_half(float v) {
    return f32_to_f16(clamp(v, -kMaxHalf, kMaxHalf));
}

// A scale is rounded away from zero: the largest code still reaches the largest value, and a scale
// that is small for a half does not vanish.
uint16_t to_half_scale(float scale) {
    const uint16_t half = to_half(scale);
    const bool below = std::fabs(f16_to_f32(half)) < std::fabs(scale) && (half & 0x7fff) < 0x7bff;
    return static_cast<uint16_t>(half + below);
}

// The element that is farthest from zero.
template <int kN>
float peak_of(const float* x) {
    float peak = 0;
    for (int i = 0; i < kN; ++i)
        if (std::fabs(x[i]) > std::fabs(peak)) peak = x[i];
    return peak;
}

// The scale d with the least sum of (x - d * q)^2 among those that follow from rounding x to
// integers q of [lo, hi], lo = -hi - 1, with the peak near lo. May be negative.
template <int kN>
float fit_scale(const float* x, float lo, float hi) {
    const float peak = peak_of<kN>(x);
    if (std::fabs(peak) < kTiny) return 0;
    float best_gain = 0;
    float best_scale = 0;
    for (int step = -4; step <= 4; ++step) {
        const float inverse = (lo + 0.25f * static_cast<float>(step)) / peak;
        float xq = 0;
        float qq = 0;
        for (int i = 0; i < kN; ++i) {
            const float q = nearest(inverse * x[i], lo, hi);
            xq += x[i] * q;
            qq += q * q;
        }
        // With d = xq / qq the squared error is the sum of x^2 less xq * d.
        if (qq > 0 && xq * (xq / qq) > best_gain) {
            best_scale = xq / qq;
            best_gain = xq * best_scale;
        }
    }
    return best_scale;
}

struct Affine {
    float scale;
    float min;
};

// Sums over one rounding of a sub-block, for n values y >= 0 and their codes q.
struct AffineSums {
    float n, y, q, yq, qq;
};

// The line scale * q + min of least squared error whose min is at most max_min; the gain is what it
// takes off the sum of y^2.
Affine solve(const AffineSums& s, float max_min, float& gain) {
    const float determinant = s.n * s.qq - s.q * s.q;
    gain = 0;
    if (determinant <= 0) return {0, 0};
    Affine fit = {(s.n * s.yq - s.y * s.q) / determinant, (s.qq * s.y - s.q * s.yq) / determinant};
    if (fit.min > max_min) fit = {(s.yq - max_min * s.q) / s.qq, max_min};
    gain = 2 * (fit.scale * s.yq + fit.min * s.y) - fit.scale * fit.scale * s.qq -
           fit.min * (s.n * fit.min + 2 * fit.scale * s.q);
    return fit;
}

// The best line scale * q + min, q an integer of [0, hi], over a few roundings. When `below_zero`,
// min is at most 0: the format stores -min as a number that is not negative.
template <int kN>
Affine fit_affine(const float* x, float hi, bool below_zero) {
    float min = x[0];
    float max = x[0];
    for (int i = 0; i < kN; ++i) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
    }
    if (below_zero && min > 0) min = 0;
    if (max - min < kTiny) return {0, min};
    // With y = x - min a large common offset costs no accuracy.
    float y[kN];
    float sum_y = 0;
    for (int i = 0; i < kN; ++i) {
        y[i] = x[i] - min;
        sum_y += y[i];
    }
    const float max_min = below_zero ? -min : max - min;
    Affine best = {(max - min) / hi, 0};
    float best_gain = 0;
    for (int step = -3; step <= 4; ++step) {
        const float inverse = (hi + 0.25f * static_cast<float>(step)) / (max - min);
        AffineSums sums = {kN, sum_y, 0, 0, 0};
        for (int i = 0; i < kN; ++i) {
            const float q = nearest(inverse * y[i], 0, hi);
            sums.q += q;
            sums.yq += y[i] * q;
            sums.qq += q * q;
        }
        float gain;
        const Affine fit = solve(sums, max_min, gain);
        if (gain > best_gain) {
            best_gain = gain;
            best = fit;
        }
    }
    return {best.scale, best.min + min};
}

// q = the integers of [lo, hi] nearest to (x - min) / scale, less lo.
template <int kN>
void encode(const float* x, float scale, float min, float lo, float hi, uint8_t* q) {
    const float inverse = scale != 0 ? 1 / scale : 0;
    for (int i = 0; i < kN; ++i)
        q[i] = static_cast<uint8_t>(nearest((x[i] - min) * inverse, lo, hi) - lo);
}

// The min, at most 0, that suits a scale which was rounded after `min` was found for it.
template <int kN>
float refit_min(const float* x, float scale, float min, float hi) {
    uint8_t q[kN];
    encode<kN>(x, scale, min, 0, hi, q);
    float sum = 0;
    for (int i = 0; i < kN; ++i) sum += x[i] - scale * q[i];
    return sum < 0 ? sum / kN : 0;
}

// Element i in the low, element i + n in the high nibble of byte i.
void pack_nibbles(const uint8_t* q, int n, uint8_t* out) {
    for (int i = 0; i < n; ++i) out[i] = static_cast<uint8_t>((q[i] & 15) | (q[i + n] & 15) << 4);
}

void pack_fifth_bits(const uint8_t q[kQK32], uint8_t qh[4]) {
    for (int i = 0; i < 4; ++i) qh[i] = 0;
    for (int e = 0; e < kQK32; ++e)
        qh[e / 8] = static_cast<uint8_t>(qh[e / 8] | (q[e] >> 4) << (e % 8));
}

// The two low bits of Q2_K and Q3_K, in their common order.
void pack_pairs(const uint8_t q[kQK], uint8_t qs[kQK / 4]) {
    for (int half = 0; half < 2; ++half)
        for (int l = 0; l < 32; ++l) {
            int byte = 0;
            for (int k = 0; k < 4; ++k) byte |= (q[128 * half + 32 * k + l] & 3) << (2 * k);
            qs[32 * half + l] = static_cast<uint8_t>(byte);
        }
}

void quantize(const float* x, BlockQ4_0& b) {
    b.d = to_half_scale(fit_scale<kQK32>(x, -8, 7));
    uint8_t q[kQK32];
    encode<kQK32>(x, f16_to_f32(b.d), 0, -8, 7, q);
    pack_nibbles(q, 16, b.qs);
}

void quantize(const float* x, BlockQ4_1& b) {
    const Affine fit = fit_affine<kQK32>(x, 15, false);
    b.d = to_half_scale(fit.scale);
    b.m = to_half(fit.min);
    uint8_t q[kQK32];
    encode<kQK32>(x, f16_to_f32(b.d), f16_to_f32(b.m), 0, 15, q);
    pack_nibbles(q, 16, b.qs);
}

void quantize(const float* x, BlockQ5_0& b) {
    b.d = to_half_scale(fit_scale<kQK32>(x, -16, 15));
    uint8_t q[kQK32];
    encode<kQK32>(x, f16_to_f32(b.d), 0, -16, 15, q);
    pack_nibbles(q, 16, b.qs);
    pack_fifth_bits(q, b.qh);
}

void quantize(const float* x, BlockQ5_1& b) {
    const Affine fit = fit_affine<kQK32>(x, 31, false);
    b.d = to_half_scale(fit.scale);
    b.m = to_half(fit.min);
    uint8_t q[kQK32];
    encode<kQK32>(x, f16_to_f32(b.d), f16_to_f32(b.m), 0, 31, q);
    pack_nibbles(q, 16, b.qs);
    pack_fifth_bits(q, b.qh);
}

void quantize(const float* x, BlockQ8_0& b) {
    b.d = to_half_scale(std::fabs(peak_of<kQK32>(x)) / 127);
    const float d = f16_to_f32(b.d);
    const float inverse = d != 0 ? 1 / d : 0;
    for (int i = 0; i < kQK32; ++i)
        b.qs[i] = static_cast<int8_t>(nearest(x[i] * inverse, -127, 127));
}

// Stores numbers >= 0 as integers 0..hi times a half, which is returned through `unit`.
template <int kN>
void quantize_scales(const float* scales, float hi, uint16_t& unit, uint8_t* out) {
    float max = 0;
    for (int i = 0; i < kN; ++i) max = scales[i] > max ? scales[i] : max;
    unit = to_half_scale(max / hi);
    encode<kN>(scales, f16_to_f32(unit), 0, 0, hi, out);
}

// Stores numbers of any sign as integers lo..hi times a half; the largest of them is at lo.
template <int kN>
void quantize_signed_scales(const float* scales, float lo, float hi, uint16_t& unit, int8_t* out) {
    unit = to_half_scale(peak_of<kN>(scales) / lo);
    const float d = f16_to_f32(unit);
    const float inverse = d != 0 ? 1 / d : 0;
    for (int i = 0; i < kN; ++i) out[i] = static_cast<int8_t>(nearest(scales[i] * inverse, lo, hi));
}

// Fits the sub-blocks of a format with scales and mins, which are stored as integers 0..max_stored
// times b.d and -b.dmin, and encodes them.
template <int kSubBlock, typename Block>
void quantize_affine(const float* x, float hi, float max_stored, Block& b, uint8_t* stored_scales,
                     uint8_t* stored_mins, uint8_t q[kQK]) {
    constexpr int n_sub = kQK / kSubBlock;
    float scales[n_sub], mins[n_sub];
    for (int s = 0; s < n_sub; ++s) {
        const Affine fit = fit_affine<kSubBlock>(x + kSubBlock * s, hi, true);
        scales[s] = fit.scale;
        mins[s] = fit.min;
    }
    quantize_scales<n_sub>(scales, max_stored, b.d, stored_scales);
    const float d = f16_to_f32(b.d);
    for (int s = 0; s < n_sub; ++s)
        mins[s] = -refit_min<kSubBlock>(x + kSubBlock * s, d * stored_scales[s], mins[s], hi);
    quantize_scales<n_sub>(mins, max_stored, b.dmin, stored_mins);
    const float dmin = f16_to_f32(b.dmin);
    for (int s = 0; s < n_sub; ++s)
        encode<kSubBlock>(x + kSubBlock * s, d * stored_scales[s], -(dmin * stored_mins[s]), 0, hi,
                          q + kSubBlock * s);
}

void quantize(const float* x, BlockQ2_K& b) {
    uint8_t scales[16], mins[16], q[kQK];
    quantize_affine<16>(x, 3, 15, b, scales, mins, q);
    for (int s = 0; s < 16; ++s) b.scales[s] = static_cast<uint8_t>(scales[s] | mins[s] << 4);
    pack_pairs(q, b.qs);
}

void quantize(const float* x, BlockQ3_K& b) {
    float scales[16];
    for (int s = 0; s < 16; ++s) scales[s] = fit_scale<16>(x + 16 * s, -4, 3);
    int8_t packed[16];
    quantize_signed_scales<16>(scales, -32, 31, b.d, packed);
    const float d = f16_to_f32(b.d);
    std::memset(b.scales, 0, sizeof b.scales);
    uint8_t q[kQK];
    for (int s = 0; s < 16; ++s) {
        const int biased = packed[s] + 32;
        uint8_t& low = b.scales[s % 8];
        uint8_t& high = b.scales[8 + s % 4];
        low = static_cast<uint8_t>(low | (biased & 15) << (s / 8 * 4));
        high = static_cast<uint8_t>(high | (biased >> 4) << (s / 4 * 2));
        encode<16>(x + 16 * s, d * packed[s], 0, -4, 3, q + 16 * s);
    }
    pack_pairs(q, b.qs);
    for (int l = 0; l < 32; ++l) {
        int byte = 0;
        for (int k = 0; k < 8; ++k) byte |= (q[32 * k + l] >> 2) << k;
        b.hmask[l] = static_cast<uint8_t>(byte);
    }
}

// The part that Q4_K and Q5_K share: everything but bit 4 of the codes.
template <typename Block>
void quantize_4_5_k(const float* x, float hi, Block& b, uint8_t q[kQK]) {
    uint8_t sc[8], mn[8];
    quantize_affine<32>(x, hi, 63, b, sc, mn, q);
    for (int i = 0; i < 4; ++i) {
        b.scales[i] = static_cast<uint8_t>(sc[i] | (sc[i + 4] >> 4) << 6);
        b.scales[i + 4] = static_cast<uint8_t>(mn[i] | (mn[i + 4] >> 4) << 6);
        b.scales[i + 8] = static_cast<uint8_t>((sc[i + 4] & 15) | (mn[i + 4] & 15) << 4);
    }
    for (int k = 0; k < 4; ++k) pack_nibbles(q + 64 * k, 32, b.qs + 32 * k);
}

void quantize(const float* x, BlockQ4_K& b) {
    uint8_t q[kQK];
    quantize_4_5_k(x, 15, b, q);
}

void quantize(const float* x, BlockQ5_K& b) {
    uint8_t q[kQK];
    quantize_4_5_k(x, 31, b, q);
    for (int l = 0; l < 32; ++l) {
        int byte = 0;
        for (int k = 0; k < 8; ++k) byte |= (q[32 * k + l] >> 4) << k;
        b.qh[l] = static_cast<uint8_t>(byte);
    }
}

void quantize(const float* x, BlockQ6_K& b) {
    float scales[16];
    for (int s = 0; s < 16; ++s) scales[s] = fit_scale<16>(x + 16 * s, -32, 31);
    quantize_signed_scales<16>(scales, -128, 127, b.d, b.scales);
    const float d = f16_to_f32(b.d);
    uint8_t q[kQK];
    for (int s = 0; s < 16; ++s) encode<16>(x + 16 * s, d * b.scales[s], 0, -32, 31, q + 16 * s);
    for (int half = 0; half < 2; ++half) {
        for (int k = 0; k < 2; ++k)
            for (int l = 0; l < 32; ++l) {
                const uint8_t* e = q + 128 * half + 32 * k + l;
                b.ql[64 * half + 32 * k + l] =
                    static_cast<uint8_t>((e[0] & 15) | (e[64] & 15) << 4);
            }
        for (int l = 0; l < 32; ++l) {
            int byte = 0;
            for (int k = 0; k < 4; ++k) byte |= (q[128 * half + 32 * k + l] >> 4) << (2 * k);
            b.qh[32 * half + l] = static_cast<uint8_t>(byte);
        }
    }
}

// Index = floor(2 * v) + 256 for v in [-128, 127.5]: the nearest of kIq4Levels. The middles between
// neighbours are multiples of one half, so the cells never straddle one.
constexpr std::array<uint8_t, 512> kNearestLevel = [] {
    std::array<uint8_t, 512> table{};
    for (int i = 0; i < 512; ++i) {
        int level = 0;
        while (level < 15 && i - 256 >= kIq4Levels[level] + kIq4Levels[level + 1]) ++level;
        table[static_cast<size_t>(i)] = static_cast<uint8_t>(level);
    }
    return table;
}();

uint8_t nearest_level(float v) {
    return kNearestLevel[static_cast<size_t>(2 * clamp(v, -128, 127) + 256)];
}

// As fit_scale, for the levels of IQ4_NL: the peak near the first or the last of them.
float fit_levels(const float* x) {
    const float peak = peak_of<kQK32>(x);
    if (std::fabs(peak) < kTiny) return 0;
    float best_gain = 0;
    float best_scale = 0;
    for (const float end : {-127.0f, 113.0f})
        for (int step = -3; step <= 3; ++step) {
            const float inverse = (end + 4 * static_cast<float>(step)) / peak;
            float xq = 0;
            float qq = 0;
            for (int i = 0; i < kQK32; ++i) {
                const float q = kIq4Levels[nearest_level(inverse * x[i])];
                xq += x[i] * q;
                qq += q * q;
            }
            if (xq * (xq / qq) > best_gain) {
                best_scale = xq / qq;
                best_gain = xq * best_scale;
            }
        }
    return best_scale;
}

void encode_levels(const float* x, float scale, uint8_t qs[kQK32 / 2]) {
    const float inverse = scale != 0 ? 1 / scale : 0;
    uint8_t q[kQK32];
    for (int i = 0; i < kQK32; ++i) q[i] = nearest_level(x[i] * inverse);
    pack_nibbles(q, 16, qs);
}

void quantize(const float* x, BlockIQ4_NL& b) {
    b.d = to_half_scale(fit_levels(x));
    encode_levels(x, f16_to_f32(b.d), b.qs);
}

void quantize(const float* x, BlockIQ4_XS& b) {
    float scales[8];
    for (int s = 0; s < 8; ++s) scales[s] = fit_levels(x + 32 * s);
    int8_t packed[8];
    quantize_signed_scales<8>(scales, -32, 31, b.d, packed);
    const float d = f16_to_f32(b.d);
    int high = 0;
    std::memset(b.scales_l, 0, sizeof b.scales_l);
    for (int s = 0; s < 8; ++s) {
        const int biased = packed[s] + 32;
        uint8_t& low = b.scales_l[s / 2];
        low = static_cast<uint8_t>(low | (biased & 15) << (s % 2 * 4));
        high |= (biased >> 4) << (2 * s);
        encode_levels(x + 32 * s, d * packed[s], b.qs + 16 * s);
    }
    b.scales_h = static_cast<uint16_t>(high);
}

template <typename Block, int kElements>
void quantize_blocks(const float* x, void* row, size_t n) {
    uint8_t* to = static_cast<uint8_t*>(row);
    for (size_t i = 0; i < n; i += kElements, to += sizeof(Block)) {
        float values[kElements];
        for (int e = 0; e < kElements; ++e)
            values[e] = clamp(x[i + static_cast<size_t>(e)], -kMaxMagnitude, kMaxMagnitude);
        Block block;
        quantize(values, block);
        std::memcpy(to, &block, sizeof block);
    }
}

template <uint16_t (*kConvert)(float), uint16_t kInfinity>
void convert_to_halves(const float* x, void* row, size_t n) {
    uint8_t* to = static_cast<uint8_t*>(row);
    for (size_t i = 0; i < n; ++i) {
        uint16_t half = kConvert(x[i]);
        if ((half & 0x7fff) == kInfinity) --half;
        std::memcpy(to + 2 * i, &half, sizeof half);
    }
}

}  // namespace

void quantize_row(TensorType type, const float* x, void* row, size_t n) {
    switch (type) {
        case TensorType::f32:
            if (n > 0) std::memcpy(row, x, n * sizeof *x);
            return;
        case TensorType::f16:
            return convert_to_halves<f32_to_f16, 0x7c00>(x, row, n);
        case TensorType::bf16:
            return convert_to_halves<f32_to_bf16, 0x7f80>(x, row, n);
        case TensorType::q4_0:
            return quantize_blocks<BlockQ4_0, kQK32>(x, row, n);
        case TensorType::q4_1:
            return quantize_blocks<BlockQ4_1, kQK32>(x, row, n);
        case TensorType::q5_0:
            return quantize_blocks<BlockQ5_0, kQK32>(x, row, n);
        case TensorType::q5_1:
            return quantize_blocks<BlockQ5_1, kQK32>(x, row, n);
        case TensorType::q8_0:
            return quantize_blocks<BlockQ8_0, kQK32>(x, row, n);
        case TensorType::q2_k:
            return quantize_blocks<BlockQ2_K, kQK>(x, row, n);
        case TensorType::q3_k:
            return quantize_blocks<BlockQ3_K, kQK>(x, row, n);
        case TensorType::q4_k:
            return quantize_blocks<BlockQ4_K, kQK>(x, row, n);
        case TensorType::q5_k:
            return quantize_blocks<BlockQ5_K, kQK>(x, row, n);
        case TensorType::q6_k:
            return quantize_blocks<BlockQ6_K, kQK>(x, row, n);
        case TensorType::iq4_nl:
            return quantize_blocks<BlockIQ4_NL, kQK32>(x, row, n);
        case TensorType::iq4_xs:
            return quantize_blocks<BlockIQ4_XS, kQK>(x, row, n);
    }
}

}  // namespace picolm
