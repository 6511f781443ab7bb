#include "model/rope.h"

#include "base/math.h"

namespace picolm {

RopeTable::RopeTable(const ModelSpec& spec, const float* freq_divisors) {
    const uint32_t n_pairs = spec.n_rot / 2;
    for (uint32_t i = 0; i < n_pairs; ++i) {
        const double exponent = -2.0 * i / spec.n_rot;
        double frequency = pow_f64(spec.rope_freq_base, exponent) * spec.rope_freq_scale;
        if (freq_divisors) frequency = frequency / static_cast<double>(freq_divisors[i]);
        frequencies_.push_back(frequency);
    }
}

void RopeTable::compute(uint32_t first, uint32_t n, float* cos, float* sin) const {
    for (uint32_t t = 0; t < n; ++t)
        for (const double frequency : frequencies_) {
            const SinCos angle = sincos_f64((first + t) * frequency);
            *cos++ = static_cast<float>(angle.cos);
            *sin++ = static_cast<float>(angle.sin);
        }
}

}  // namespace picolm
