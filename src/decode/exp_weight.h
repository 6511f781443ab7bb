// exp(-t) as a whole number, for the sampler. A vocabulary of them is needed per token, and exp_f64
// for each would be most of the sampler's time: this is a look-up and a short polynomial.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace picolm {

inline constexpr double kFullWeight = 1099511627776.0;  // 2^40: the weight at t = 0, exactly
inline constexpr double kWeightReach = 28.5;            // from about 28.4 on the weight is 0
inline constexpr int kWeightSteps = 32;                 // table entries per unit of t

using ExpWeightTable = std::array<double, static_cast<size_t>(kWeightReach* kWeightSteps) + 1>;

const ExpWeightTable& exp_weight_table();  // 2^40 exp(-i / 32)

// exp(-t) = exp(-step / 32) * rest. No branch and no call, so that a loop becomes vector code.
struct ExpWeightParts {
    int32_t step;
    double rest;
};
inline ExpWeightParts exp_weight_parts(double t) {  // 0 <= t <= kWeightReach
    const int32_t step = static_cast<int32_t>(t * kWeightSteps);
    const double f = t - step * (1.0 / kWeightSteps);
    double p = 1.0 / 720;
    p = p * f - 1.0 / 120;
    p = p * f + 1.0 / 24;
    p = p * f - 1.0 / 6;
    p = p * f + 0.5;
    p = p * f - 1.0;
    p = p * f + 1.0;
    return {step, p};
}
inline uint64_t exp_weight_from(const ExpWeightTable& table, int32_t step, double rest) {
    const double weight = table[static_cast<size_t>(step)] * rest + 0.5;
    return static_cast<uint64_t>(static_cast<int64_t>(weight));
}

// Within 1/20 of 2^40 exp(-t) before it is rounded. REQUIRES 0 <= t <= kWeightReach.
inline uint64_t exp_weight(double t) {
    const ExpWeightParts parts = exp_weight_parts(t);
    return exp_weight_from(exp_weight_table(), parts.step, parts.rest);
}

}  // namespace picolm
