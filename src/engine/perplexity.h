// How well a model predicts a text, and how far it is from what another one said about it. Scores
// the windows of a text one after the other; a few rows of logits are in memory at a time. The
// numbers do not depend on threads, chunks or the instruction-set level.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "engine/logits_file.h"
#include "engine/session.h"
#include "engine/windows.h"

namespace picolm {

// Mean of a sample and its standard error (as if the values were independent, as is usual; those of
// one text are not quite). Welford's update.
class Sample {
  public:
    void add(double value);
    uint64_t n() const { return n_; }
    double mean() const { return mean_; }
    double error() const;  // 0 for fewer than two values

  private:
    uint64_t n_ = 0;
    double mean_ = 0;
    double squares_ = 0;  // sum of the squared distances from the mean
};

struct Estimate {
    double value = 0;
    double error = 0;
};
// exp of the mean, and its error to first order: a perplexity, or a ratio of two.
Estimate exp_of(const Sample& sample);

// Compared with saved logits. Differences are this model minus the saved run.
struct Divergence {
    Sample saved_loss;              // -ln p(right token) of the saved run
    Sample loss_difference;         // of -ln p(right token)
    Sample kl;                      // KL(saved || this model), in nats
    std::vector<double> kl_values;  // in the order of the text
    uint64_t n_same_best = 0;       // positions with the same likeliest token

    // The value that this share of the positions does not exceed, by linear interpolation between
    // neighbours: 0.5 is the median, 1 the largest. REQUIRES: a position was scored.
    double kl_quantile(double share) const;
    Estimate same_best() const;  // a share
};

struct PerplexityResult {
    Windows windows;
    uint32_t n_windows_done = 0;
    Sample loss;  // -ln p(right token)
    std::optional<Divergence> divergence;
};

struct PerplexityRun {
    std::span<const TokenId> tokens{};  // at least windows.n_tokens()
    Windows windows{};
    TokenId bos = kNoBos;
    LogitsWriter* save = nullptr;
    LogitsReader* compare = nullptr;                          // REQUIRES: check_comparable()
    std::function<void(const PerplexityResult&)> progress{};  // after every few tokens
    const std::atomic<bool>* cancel = nullptr;
};

// invalid, with the difference: the file was saved from other tokens or with another vocabulary.
Status check_comparable(const LogitsReader& file, const std::string& path, const PerplexityRun& run,
                        uint32_t n_vocab);

// After an error (cancelled, too) `result` holds what was scored until then. The saved file is not
// finished: that is the caller's to do.
Status measure_perplexity(Session& session, const PerplexityRun& run, PerplexityResult& result);

}  // namespace picolm
