// Session::generate: sample, show, append, until something ends the answer.
#include "base/machine.h"
#include "decode/stop_matcher.h"
#include "engine/session.h"
#include "text/stream_decoder.h"

namespace picolm {

Result<GenerateReport> Session::generate(const GenerateOptions& options, const TextSink& sink) {
    TRY(validate(options.sampler));
    const double start = monotonic_seconds();
    GenerateReport report;
    Sampler sampler(options.sampler, engine_.spec().n_vocab);
    StreamDecoder decoder(engine_.tokenizer(), false);
    StopMatcher matcher(options.stop);
    bool listening = true;
    const auto show = [&](const std::string& text) {
        if (listening && !text.empty()) listening = sink(text);
    };
    while (report.n_generated < options.max_tokens) {
        if (options.cancel && options.cancel->load(std::memory_order_relaxed)) {
            report.reason = FinishReason::cancelled;
            break;
        }
        TRY(const std::span<const float> scores, logits());
        TRY(const TokenId token, sampler.sample(scores, tokens_, tokens_.size()));
        if (report.n_generated == 0) report.seconds_to_first = monotonic_seconds() - start;
        if (engine_.tokenizer().is_end_of_generation(token)) {
            report.reason = FinishReason::end_of_generation;
            break;
        }
        ++report.n_generated;
        show(matcher.push(decoder.push(token)));
        if (matcher.matched()) {
            report.reason = FinishReason::stop_string;
            break;
        }
        if (!listening) {
            report.reason = FinishReason::sink_closed;
            break;
        }
        // The last token is shown without being computed: nothing follows it.
        if (report.n_generated == options.max_tokens || tokens_.size() >= options_.n_ctx) break;
        TRY(append(token));
    }
    if (!matcher.matched()) {
        show(matcher.push(decoder.finish()));
        if (!matcher.matched()) show(matcher.finish());
    }
    report.seconds = monotonic_seconds() - start;
    return report;
}

}  // namespace picolm
