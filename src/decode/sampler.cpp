#include "decode/sampler.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cfloat>

#include "base/format.h"
#include "decode/exp_weight.h"
#include "decode/random.h"

namespace picolm {
namespace {

constexpr uint32_t kMaxVocab = uint32_t{1} << 23;  // keeps a sum of weights within 2^63
constexpr double kLargestPenalty = 1e6;

// The least whole number that is not below `value`. REQUIRES 0 <= value <= 2^63.
uint64_t round_up(double value) {
    const uint64_t n = static_cast<uint64_t>(value);
    return static_cast<double>(n) < value ? n + 1 : n;
}

bool finite(double x) {
    return x >= -DBL_MAX && x <= DBL_MAX;
}

Status check_range(const char* name, double value, double low, double high) {
    if (value >= low && value <= high) return {};
    return Error{ErrorKind::invalid,
                 format("%s must be a number from %g to %g, not %g", name, low, high, value)};
}

float penalised(float logit, const SamplerOptions& o, uint32_t count) {
    double x = logit;
    x = x > 0 ? x / o.repeat_penalty : x * o.repeat_penalty;
    x -= o.presence_penalty;
    x -= o.frequency_penalty * count;
    return static_cast<float>(std::clamp(x, -double{FLT_MAX}, double{FLT_MAX}));
}

// An exponent of all ones carries into the sign bit, and any such bit survives the OR: the loop
// becomes vector code, the search for the culprit is left for the rare case.
Status check_finite(std::span<const float> logits) {
    constexpr uint32_t kExponent = 0x7f800000, kLowestExponentBit = 0x00800000;
    uint32_t carries = 0;
    for (const float x : logits)
        carries |= (std::bit_cast<uint32_t>(x) & kExponent) + kLowestExponentBit;
    if (carries < 0x80000000u) return {};
    const auto bad = std::find_if(logits.begin(), logits.end(), [](float x) {
        return (std::bit_cast<uint32_t>(x) & kExponent) == kExponent;
    });
    return Error{ErrorKind::invalid, format("the logit of token %td is not finite (%g)",
                                            bad - logits.begin(), static_cast<double>(*bad))};
}

}  // namespace

Status validate(const SamplerOptions& o) {
    if (!(o.temperature >= 0) || !finite(o.temperature))
        return Error{
            ErrorKind::invalid,
            format("temperature must be a finite number from 0 up, not %g", o.temperature)};
    TRY(check_range("top_p", o.top_p, 0, 1));
    TRY(check_range("min_p", o.min_p, 0, 1));
    TRY(check_range("repeat_penalty", o.repeat_penalty, 1 / kLargestPenalty, kLargestPenalty));
    TRY(check_range("presence_penalty", o.presence_penalty, -kLargestPenalty, kLargestPenalty));
    return check_range("frequency_penalty", o.frequency_penalty, -kLargestPenalty, kLargestPenalty);
}

Sampler::Sampler(const SamplerOptions& options, uint32_t n_vocab)
    : options_(options), scores_(n_vocab), ids_(n_vocab), buckets_(n_vocab) {
    assert(validate(options));
    // The bound keeps 0 times it at 0, for temperatures whose reciprocal overflows.
    if (options.temperature > 0)
        inverse_temperature_ = std::min(1.0 / options.temperature, DBL_MAX);
    min_weight_ = round_up(options.min_p * kFullWeight);
}

Result<TokenId> Sampler::sample(std::span<const float> logits, std::span<const TokenId> history,
                                uint64_t position, uint32_t attempt) {
    if (logits.size() != scores_.size() || logits.empty() || logits.size() > kMaxVocab)
        return Error{ErrorKind::invalid, format("%zu logits do not fit a vocabulary of %zu",
                                                logits.size(), scores_.size())};
    std::copy(logits.begin(), logits.end(), scores_.begin());
    TRY(check_finite(logits));
    TRY(apply_penalties(history));
    find_range();
    if (options_.temperature == 0)
        return static_cast<TokenId>(std::find(scores_.begin(), scores_.end(), best_) -
                                    scores_.begin());
    fill_buckets();
    const uint64_t random = random_bits(options_.seed, position, attempt);
    return locate(scale_to(random, kept_weight()) + 1).token;
}

Status Sampler::apply_penalties(std::span<const TokenId> history) {
    const SamplerOptions& o = options_;
    if (o.repeat_penalty == 1 && o.presence_penalty == 0 && o.frequency_penalty == 0) return {};
    const auto window = history.last(std::min<size_t>(history.size(), o.penalty_window));
    std::vector<uint32_t>& counts = ids_;
    for (const TokenId id : window) {
        if (id >= scores_.size())
            return Error{ErrorKind::invalid,
                         format("token %u is outside the vocabulary of %zu", id, scores_.size())};
        counts[id] = 0;
    }
    for (const TokenId id : window) ++counts[id];
    for (const TokenId id : window) {
        if (counts[id] == 0) continue;
        scores_[id] = penalised(scores_[id], o, counts[id]);
        counts[id] = 0;
    }
    return {};
}

void Sampler::find_range() {
    // Independent lanes: one chain of comparisons would wait for itself.
    constexpr size_t kLanes = 8;
    std::array<float, kLanes> high, low;
    high.fill(scores_[0]);
    low.fill(scores_[0]);
    size_t i = 0;
    for (; i + kLanes <= scores_.size(); i += kLanes) {
        for (size_t j = 0; j < kLanes; ++j) {
            const float x = scores_[i + j];
            high[j] = x > high[j] ? x : high[j];
            low[j] = x < low[j] ? x : low[j];
        }
    }
    best_ = *std::max_element(high.begin(), high.end());
    worst_ = *std::min_element(low.begin(), low.end());
    for (; i < scores_.size(); ++i) {
        best_ = std::max(best_, scores_[i]);
        worst_ = std::min(worst_, scores_[i]);
    }
}

void Sampler::fill_buckets() {
    bucket_weight_.fill(0);
    const double best = best_, inverse = inverse_temperature_;
    // t below kWeightReach falls into a bucket; the tokens beyond share the last one.
    const double range = (best - worst_) * inverse;
    const double scale = range >= kWeightReach ? kBuckets / kWeightReach
                         : range > 0           ? std::min((kBuckets - 1) / range, DBL_MAX)
                                               : 0;
    const ExpWeightTable& table = exp_weight_table();
    const uint64_t min_weight = min_weight_;
    uint64_t total = 0, min_p = 0;
    constexpr size_t kBlock = 64;
    int32_t steps[kBlock], slots[kBlock];
    double ts[kBlock], rests[kBlock];
    for (size_t first = 0; first < scores_.size(); first += kBlock) {
        const size_t n = std::min(kBlock, scores_.size() - first);
        const float* scores = scores_.data() + first;
        for (size_t j = 0; j < n; ++j) {
            const double t = (best - scores[j]) * inverse;
            ts[j] = t < kWeightReach ? t : kWeightReach;
        }
        for (size_t j = 0; j < n; ++j) {
            const ExpWeightParts parts = exp_weight_parts(ts[j]);
            steps[j] = parts.step;
            rests[j] = parts.rest;
            slots[j] = static_cast<int32_t>(ts[j] * scale);
        }
        for (size_t j = 0; j < n; ++j) {
            const uint64_t w = exp_weight_from(table, steps[j], rests[j]);
            buckets_[first + j] = static_cast<uint16_t>(slots[j]);
            bucket_weight_[static_cast<size_t>(slots[j])] += w;
            total += w;
            min_p += w >= min_weight ? w : 0;
        }
    }
    total_weight_ = total;
    min_p_weight_ = min_p;
}

uint64_t Sampler::weight(float score) const {
    return exp_weight((double{best_} - score) * inverse_temperature_);
}

std::span<const TokenId> Sampler::sorted_bucket(size_t index) {
    const uint16_t bucket = static_cast<uint16_t>(index);
    constexpr size_t kBlock = 64;  // most blocks hold none: look first, in vector code
    size_t n = 0;
    for (size_t first = 0; first < buckets_.size(); first += kBlock) {
        const size_t end = std::min(first + kBlock, buckets_.size());
        uint16_t any = 0;
        for (size_t i = first; i < end; ++i) any |= buckets_[i] == bucket;
        if (!any) continue;
        for (size_t i = first; i < end; ++i)
            if (buckets_[i] == bucket) ids_[n++] = static_cast<TokenId>(i);
    }
    const auto before = [this](TokenId a, TokenId b) {
        return scores_[a] > scores_[b] || (scores_[a] == scores_[b] && a < b);
    };
    const auto end = ids_.begin() + static_cast<std::ptrdiff_t>(n);
    if (!std::is_sorted(ids_.begin(), end, before)) std::sort(ids_.begin(), end, before);
    return {ids_.data(), n};
}

// The first token, best first, at which the sum of weights reaches target.
// REQUIRES 0 < target <= total_weight_.
Sampler::Found Sampler::locate(uint64_t target) {
    assert(target > 0 && target <= total_weight_);
    uint64_t sum = 0;
    size_t bucket = 0;
    while (sum + bucket_weight_[bucket] < target) sum += bucket_weight_[bucket++];
    Found found{0, sum};
    for (const TokenId id : sorted_bucket(bucket)) {
        found.token = id;
        found.through += weight(scores_[id]);
        if (found.through >= target) break;
    }
    return found;
}

uint64_t Sampler::weight_of_first(uint32_t n) {
    bucket_count_.fill(0);
    for (const uint16_t bucket : buckets_) ++bucket_count_[bucket];
    uint64_t sum = 0;
    for (size_t bucket = 0; bucket < kBuckets; ++bucket) {
        if (bucket_count_[bucket] >= n) {
            for (const TokenId id : sorted_bucket(bucket).first(n)) sum += weight(scores_[id]);
            return sum;
        }
        n -= bucket_count_[bucket];
        sum += bucket_weight_[bucket];
    }
    return sum;
}

// Every filter keeps a run of tokens from the best one on, so the lightest run is what all keep.
uint64_t Sampler::kept_weight() {
    const uint64_t base = options_.top_k ? weight_of_first(options_.top_k) : total_weight_;
    uint64_t kept = base;
    if (options_.top_p < 1) {
        const uint64_t share = round_up(options_.top_p * static_cast<double>(base));
        kept = locate(std::clamp<uint64_t>(share, 1, base)).through;
    }
    return options_.min_p > 0 ? std::min(kept, min_p_weight_) : kept;
}

}  // namespace picolm
