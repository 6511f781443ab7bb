#include "decode/log_softmax.h"

#include <algorithm>

#include "base/math.h"
#include "decode/exp_weight.h"

namespace picolm {

LogSoftmax log_softmax(std::span<const float> logits) {
    LogSoftmax result;
    const auto best = std::max_element(logits.begin(), logits.end());
    result.best = static_cast<TokenId>(best - logits.begin());
    result.best_logit = *best;
    const ExpWeightTable& table = exp_weight_table();
    double sum = 0;  // in units of 1 / kFullWeight
    for (const float logit : logits) {
        const double below = double{result.best_logit} - double{logit};
        if (below > kWeightReach) continue;
        const ExpWeightParts parts = exp_weight_parts(below);
        sum += table[static_cast<size_t>(parts.step)] * parts.rest;
    }
    result.log_sum = log_f64(sum / kFullWeight);
    return result;
}

}  // namespace picolm
