#include "engine/perplexity.h"

#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "base/math.h"
#include "decode/log_softmax.h"

namespace picolm {
namespace {

double divergence(const SavedLogits& saved, std::span<const float> logits, const LogSoftmax& now) {
    const std::span<const SavedStep> steps = saved_steps();
    double total = 0, sum = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
        const SavedStep& step = steps[saved.steps[i]];
        total += step.weight;
        sum += step.weight * (-step.below - now.of(logits[i]));
    }
    return sum / total - log_f64(total);
}

// Scores one token by the logits in front of it.
Status score(const PerplexityRun& run, TokenId token, std::span<const float> logits,
             PerplexityResult& result) {
    const LogSoftmax now = log_softmax(logits);
    const double log_probability = now.of(logits[token]);
    if (run.save) TRY(run.save->add(token, logits, now));
    if (run.compare) {
        TRY(const SavedLogits saved, run.compare->next());
        Divergence& d = *result.divergence;
        d.saved_loss.add(-saved.log_probability);
        d.loss_difference.add(saved.log_probability - log_probability);
        d.kl_values.push_back(divergence(saved, logits, now));
        d.kl.add(d.kl_values.back());
        d.n_same_best += saved.best == now.best;
    }
    result.loss.add(-log_probability);
    return {};
}

}  // namespace

void Sample::add(double value) {
    ++n_;
    const double before = value - mean_;
    mean_ += before / static_cast<double>(n_);
    squares_ += before * (value - mean_);
}

double Sample::error() const {
    if (n_ < 2) return 0;
    return std::sqrt(squares_ / static_cast<double>(n_) / static_cast<double>(n_ - 1));
}

Estimate exp_of(const Sample& sample) {
    const double value = exp_f64(sample.mean());
    return {value, value * sample.error()};
}

double Divergence::kl_quantile(double share) const {
    std::vector<double> sorted = kl_values;
    std::sort(sorted.begin(), sorted.end());
    const double place = share * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<size_t>(place);
    const size_t above = std::min(below + 1, sorted.size() - 1);
    const double part = place - static_cast<double>(below);
    return sorted[below] + part * (sorted[above] - sorted[below]);
}

Estimate Divergence::same_best() const {
    const auto n = static_cast<double>(kl.n());
    if (kl.n() == 0) return {};
    const double share = static_cast<double>(n_same_best) / n;
    return {share, kl.n() < 2 ? 0 : std::sqrt(share * (1 - share) / (n - 1))};
}

Status check_comparable(const LogitsReader& file, const std::string& path, const PerplexityRun& run,
                        uint32_t n_vocab) {
    const LogitsHeader& h = file.header();
    if (h.n_vocab != n_vocab)
        return Error{ErrorKind::invalid,
                     format("%s was saved with a vocabulary of %u tokens, this model has %u",
                            path.c_str(), h.n_vocab, n_vocab)};
    if (h.bos != run.bos)
        return Error{ErrorKind::invalid,
                     path +
                         " was saved with another beginning-of-text token at the start of the "
                         "windows, or with none"};
    const std::vector<TokenId>& saved = file.tokens();
    if (run.tokens.size() < saved.size())
        return Error{ErrorKind::invalid,
                     format("%s was saved from other tokens: %zu of them, this text has %zu",
                            path.c_str(), saved.size(), run.tokens.size())};
    const auto differ = std::mismatch(saved.begin(), saved.end(), run.tokens.begin()).first;
    if (differ != saved.end())
        return Error{ErrorKind::invalid,
                     format("%s was saved from other tokens: they differ from token %zu on; is it "
                            "the same text?",
                            path.c_str(), static_cast<size_t>(differ - saved.begin()))};
    return {};
}

Status measure_perplexity(Session& session, const PerplexityRun& run, PerplexityResult& result) {
    const Windows& w = run.windows;
    result = {};
    result.windows = w;
    if (run.compare) result.divergence.emplace();
    std::vector<TokenId> window;  // [n_ctx]
    for (uint32_t i = 0; i < w.n_windows; ++i) {
        const auto text = run.tokens.subspan(size_t{i} * w.step, w.n_ctx);
        window.assign(text.begin(), text.end());
        if (run.bos != kNoBos) window.front() = run.bos;
        const Session::LogitsSink sink = [&](uint32_t first, uint32_t n,
                                             std::span<const float> logits) -> Status {
            const size_t n_vocab = logits.size() / n;
            for (uint32_t t = 0; t < n; ++t)
                TRY(score(run, window[first + t + 1], logits.subspan(t * n_vocab, n_vocab),
                          result));
            if (run.progress) run.progress(result);
            return {};
        };
        // Nothing comes behind the last token, so it need not be computed.
        TRY(session.evaluate(std::span(window).first(w.n_ctx - 1), w.first - 1, sink, run.cancel));
        ++result.n_windows_done;
    }
    return {};
}

}  // namespace picolm
