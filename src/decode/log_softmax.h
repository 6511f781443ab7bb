// Log-probabilities of a row of logits, for measuring a model. In double, by our own exp and log,
// so that a measured number is the same on every machine.
#pragma once

#include <span>

#include "text/tokenizer.h"

namespace picolm {

struct LogSoftmax {
    TokenId best = 0;  // the likeliest token; of equals the one with the lowest id
    float best_logit = 0;
    double log_sum = 0;  // ln of the sum of exp(logit - best_logit)

    // The log-probability of a token with this logit, to about 1e-11. Tokens more than 28.5 below
    // the best (less than 1e-12 as likely) count as impossible in the sum.
    double of(float logit) const { return (double{logit} - double{best_logit}) - log_sum; }
};

// REQUIRES: at least one logit, all finite.
LogSoftmax log_softmax(std::span<const float> logits);

}  // namespace picolm
