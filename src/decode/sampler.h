// Logits -> the next token. Owns the sampler chain and its scratch memory; not the random stream
// (decode/random.h) nor when generation stops.
//
// The chain, in this order:
//   1. penalties, over the last `penalty_window` tokens of the timeline (prompt included), once per
//      distinct token: repeat (a positive logit is divided by it, another multiplied), then
//      minus presence, minus frequency x count
//   2. temperature; 0 takes the highest logit and ends here
//   3. top-k: the k most probable tokens
//   4. top-p: of those, the fewest most probable ones whose share is at least top_p
//   5. min-p: of those, the ones at least min_p times as probable as the best
//   6. one draw among what is left
// Temperature comes before top-p, as in the original PicoLM: its `-t 0.8 -k 0.9` cuts the nucleus
// out of the tempered distribution, and those flags keep their meaning. (Engines that temper last
// keep fewer tokens above temperature 1 and more below it.) Top-k commutes with temperature.
//
// One result on every machine: tokens are ordered by logit, ties by lower id, also at every cut. A
// probability is a whole number, round(2^40 exp((x - best) / temperature)), so that sums have no
// order; a token more than about 28 temperatures below the best has weight 0 and is never drawn.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace picolm {

struct SamplerOptions {
    double temperature = 0.8;      // >= 0, finite; 0: greedy; 1e15 is nearly uniform
    uint32_t top_k = 0;            // 0: off
    double top_p = 0.9;            // 0..1; 1: off; 0: only the best token
    double min_p = 0;              // 0..1; 0: off
    double repeat_penalty = 1;     // 1e-6..1e6; 1: off
    double presence_penalty = 0;   // -1e6..1e6; 0: off
    double frequency_penalty = 0;  // -1e6..1e6; 0: off
    uint32_t penalty_window = 64;  // tokens; 0: no penalties
    uint64_t seed = 42;
};

// invalid: names the field, the value and the range.
Status validate(const SamplerOptions& options);

// One thread at a time. Allocates 10 bytes per vocabulary entry when constructed, then nothing.
class Sampler {
  public:
    // REQUIRES: validate(options).
    Sampler(const SamplerOptions& options, uint32_t n_vocab);

    // logits: [n_vocab]. history: the whole timeline before the new token, so that a session
    // restored from a cache samples as the one that computed it. position and attempt choose the
    // random number. invalid: sizes that do not fit, a token outside the vocabulary, a logit that
    // is infinite or not a number.
    Result<TokenId> sample(std::span<const float> logits, std::span<const TokenId> history,
                           uint64_t position, uint32_t attempt = 0);

    const SamplerOptions& options() const { return options_; }

  private:
    // Buckets split the tokens by logit, best first: with the sums per bucket, only the bucket that
    // holds a cut or the drawn token must be sorted.
    // One more bucket takes the tokens of weight 0.
    static constexpr size_t kBuckets = 1024;

    struct Found {
        TokenId token;
        uint64_t through;  // weight of all tokens up to and including it, best first
    };

    Status apply_penalties(std::span<const TokenId> history);
    void find_range();
    void fill_buckets();
    uint64_t weight(float score) const;
    std::span<const TokenId> sorted_bucket(size_t bucket);
    Found locate(uint64_t target);
    uint64_t weight_of_first(uint32_t n);
    uint64_t kept_weight();

    SamplerOptions options_;
    double inverse_temperature_ = 0;
    uint64_t min_weight_ = 0;  // of min-p

    std::vector<float> scores_;      // [n_vocab] penalised logits
    std::vector<TokenId> ids_;       // [n_vocab] one bucket's tokens; before that, token counts
    std::vector<uint16_t> buckets_;  // [n_vocab]
    std::array<uint64_t, kBuckets + 1> bucket_weight_;
    std::array<uint32_t, kBuckets + 1> bucket_count_;
    float best_ = 0, worst_ = 0;
    uint64_t total_weight_ = 0;
    uint64_t min_p_weight_ = 0;  // of the tokens that min-p keeps
};

}  // namespace picolm
