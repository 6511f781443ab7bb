#include "app/perplexity_report.h"

#include <nlohmann/json.hpp>

#include "base/format.h"

namespace picolm::app {
namespace {

using Json = nlohmann::ordered_json;

// log p of this model minus log p of the saved run.
Estimate log_probability_difference(const Divergence& d) {
    return {0 - d.loss_difference.mean(), d.loss_difference.error()};
}

std::string line(const char* what, int digits, const Estimate& e, const char* unit = "") {
    return format("%-36s %12.*f%s +/- %.*f%s\n", what, digits, e.value, unit, digits, e.error,
                  unit);
}

std::string line(const char* what, double value) {
    return format("%-36s %12.6f\n", what, value);
}

std::string comparison(const std::string& saved_logits, const Divergence& d) {
    const Estimate same = d.same_best();
    std::string text = format("\nCompared with %s:\n", printable(saved_logits, 256).c_str());
    text += line("its perplexity", 4, exp_of(d.saved_loss));
    text += line("ratio of the perplexities", 6, exp_of(d.loss_difference));
    text += line("KL divergence, mean (nats)", 6, {d.kl.mean(), d.kl.error()});
    text += line("  median", d.kl_quantile(0.5));
    text += line("  99 % of the tokens are below", d.kl_quantile(0.99));
    text += line("  largest", d.kl_quantile(1));
    text += line("same likeliest token", 3, {same.value * 100, same.error * 100}, " %");
    text += line("change of ln p of the right token", 6, log_probability_difference(d));
    return text;
}

std::string table(const PerplexityReport& report) {
    const PerplexityResult& r = report.result;
    std::string text = line("Perplexity", 4, exp_of(r.loss));
    text += format("%-36s %12llu\n", "tokens scored", static_cast<unsigned long long>(r.loss.n()));
    text += format("in %s\n", describe_windows(r.windows).c_str());
    if (r.n_windows_done < r.windows.n_windows)
        text += format("interrupted: %u windows are done\n", r.n_windows_done);
    if (r.divergence) text += comparison(report.saved_logits, *r.divergence);
    return text;
}

Json json_comparison(const std::string& saved_logits, const Divergence& d) {
    const Estimate perplexity = exp_of(d.saved_loss), ratio = exp_of(d.loss_difference);
    const Estimate same = d.same_best(), change = log_probability_difference(d);
    return {{"file", saved_logits},
            {"perplexity", perplexity.value},
            {"perplexity_error", perplexity.error},
            {"perplexity_ratio", ratio.value},
            {"perplexity_ratio_error", ratio.error},
            {"mean", d.kl.mean()},
            {"mean_error", d.kl.error()},
            {"median", d.kl_quantile(0.5)},
            {"p99", d.kl_quantile(0.99)},
            {"max", d.kl_quantile(1)},
            {"same_best", same.value},
            {"same_best_error", same.error},
            {"log_probability_change", change.value},
            {"log_probability_change_error", change.error}};
}

std::string json(const PerplexityReport& report) {
    const PerplexityResult& r = report.result;
    const Estimate perplexity = exp_of(r.loss);
    Json out;
    out["program"] = "picolm";
    out["version"] = PICOLM_VERSION;
    out["model"] = {{"path", report.model},
                    {"arch", report.arch},
                    {"name", report.name},
                    {"bytes", report.model_bytes}};
    out["text_tokens"] = report.n_text_tokens;
    out["windows"] = {{"n_ctx", r.windows.n_ctx},
                      {"step", r.windows.step},
                      {"scored_each", r.windows.n_scored_each()},
                      {"planned", r.windows.n_windows},
                      {"done", r.n_windows_done}};
    out["tokens_scored"] = r.loss.n();
    out["perplexity"] = perplexity.value;
    out["perplexity_error"] = perplexity.error;
    out["loss"] = r.loss.mean();
    out["loss_error"] = r.loss.error();
    out["kl"] = r.divergence ? json_comparison(report.saved_logits, *r.divergence) : Json();
    // A name that is not UTF-8 must not throw.
    return out.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace

std::string describe_perplexity(const PerplexityReport& report, PerplexityFormat format) {
    return format == PerplexityFormat::json ? json(report) : table(report);
}

std::string describe_windows(const Windows& w) {
    std::string text = format("%u windows of %u tokens", w.n_windows, w.n_ctx);
    if (w.step < w.n_ctx) text += format(", one every %u", w.step);
    return text + format(", the last %u of each scored", w.n_scored_each());
}

}  // namespace picolm::app
