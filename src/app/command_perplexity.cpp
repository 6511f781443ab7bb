// picolm perplexity MODEL.gguf -f TEXT: text -> tokens -> windows -> score -> report.
#include <algorithm>
#include <filesystem>

#include "app/commands.h"
#include "app/open_model.h"
#include "app/perplexity_report.h"
#include "app/prompt.h"
#include "app/signals.h"
#include "base/format.h"
#include "base/machine.h"

namespace picolm::app {
namespace {

constexpr uint32_t kDefaultWindow = 512;

class PerplexityCommand {
  public:
    PerplexityCommand(const PerplexityOptions& options, Console& console)
        : options_(options), console_(console) {}
    ExitCode run();

  private:
    Status prepare(const std::string& text);
    Status choose_windows();
    Status open_saved();
    Status measure();
    void show_progress(const PerplexityResult& result);

    const PerplexityOptions& options_;
    Console& console_;
    std::unique_ptr<Engine> engine_;
    std::unique_ptr<Session> session_;  // after what it uses
    std::vector<TokenId> tokens_;
    PerplexityRun run_;
    std::unique_ptr<LogitsReader> reader_;
    std::unique_ptr<LogitsWriter> writer_;
    PerplexityReport report_;
    double start_ = 0;
};

// The file that is compared with says how the text is cut.
Status PerplexityCommand::open_saved() {
    // The file may be a link, to another disk for example.
    std::error_code error;
    const std::string path = std::filesystem::canonical(options_.saved_logits, error);
    TRY(reader_, LogitsReader::open(error ? options_.saved_logits : path));
    run_.windows = reader_->header().windows;
    run_.compare = reader_.get();
    Windows& w = run_.windows;
    const bool other_stride =
        options_.stride && (options_.stride != w.step || w.first != std::max(1u, w.n_ctx - w.step));
    if ((options_.n_ctx && options_.n_ctx != w.n_ctx) || other_stride)
        return Error{ErrorKind::invalid,
                     options_.saved_logits + " was saved with " + describe_windows(w) +
                         ": leave out -c and --stride, or give them as they were then"};
    if (options_.max_windows) w.n_windows = std::min(w.n_windows, options_.max_windows);
    return {};
}

Status PerplexityCommand::choose_windows() {
    if (!options_.saved_logits.empty()) TRY(open_saved());
    ModelOptions model = options_;
    if (run_.compare) model.n_ctx = run_.windows.n_ctx;
    SessionOptions session = session_options(model, *engine_, console_);
    if (run_.compare && session.n_ctx < run_.windows.n_ctx)
        return Error{ErrorKind::invalid,
                     format("%s was saved with windows of %u tokens, this model's context is %u",
                            options_.saved_logits.c_str(), run_.windows.n_ctx, session.n_ctx)};
    if (session.n_ctx == 0) session.n_ctx = std::min(kDefaultWindow, engine_->max_context());
    if (!run_.compare) {
        TRY(run_.windows,
            cut_into_windows(tokens_.size(), session.n_ctx, options_.stride, options_.max_windows));
    }
    const MemoryPlan plan = engine_->plan(session.n_ctx, Session::kLogitsAtOnce);
    TRY(plan.check(read_memory_facts()));
    show_plan(*engine_, plan, console_);
    TRY(session_, Session::create(*engine_, session));
    return {};
}

Status PerplexityCommand::prepare(const std::string& text) {
    TRY(engine_, open_engine(options_, console_));
    const Tokenizer& tokenizer = engine_->tokenizer();
    TRY(tokens_, tokenizer.encode(text, {.add_special = true, .parse_special = false}));
    run_.tokens = tokens_;
    if (tokenizer.add_bos() && tokenizer.bos()) run_.bos = *tokenizer.bos();
    TRY(choose_windows());
    const uint32_t n_vocab = engine_->spec().n_vocab;
    if (run_.compare) TRY(check_comparable(*run_.compare, options_.saved_logits, run_, n_vocab));
    handle_cancel();  // from here on there is something to remove
    console_.info(format("Text: %zu tokens; ", tokens_.size()) + describe_windows(run_.windows) +
                  format("; %u threads", engine_->n_threads()));
    if (options_.save_logits.empty()) return {};
    const LogitsHeader header{n_vocab, run_.windows, run_.bos};
    console_.info(format("Saving %s to %s", format_bytes(header.file_size()).c_str(),
                         options_.save_logits.c_str()));
    TRY(writer_,
        LogitsWriter::create(options_.save_logits, header,
                             run_.tokens.first(static_cast<size_t>(run_.windows.n_tokens()))));
    run_.save = writer_.get();
    return {};
}

void PerplexityCommand::show_progress(const PerplexityResult& result) {
    const double done =
        static_cast<double>(result.loss.n()) / static_cast<double>(result.windows.n_scored());
    const double left = (monotonic_seconds() - start_) * (1 - done) / done;
    const bool long_wait = left > 120;
    console_.status(format("Window %u of %u: perplexity %.4f so far, about %.0f %s left",
                           std::min(result.n_windows_done + 1, result.windows.n_windows),
                           result.windows.n_windows, exp_of(result.loss).value,
                           long_wait ? left / 60 : left, long_wait ? "min" : "s"));
}

Status PerplexityCommand::measure() {
    run_.cancel = &cancel_flag();
    run_.progress = [this](const PerplexityResult& result) { show_progress(result); };
    start_ = monotonic_seconds();
    const Status measured = measure_perplexity(*session_, run_, report_.result);
    console_.end_progress();
    if (!measured) return measured.error();
    const double seconds = std::max(monotonic_seconds() - start_, 1e-9);
    const double n_computed =
        static_cast<double>(run_.windows.n_windows) * (run_.windows.n_ctx - 1);
    console_.info(format("Took %.1f s (%.1f tok/s)", seconds, n_computed / seconds));
    return {};
}

ExitCode PerplexityCommand::run() {
    const Result<std::string> text = read_text(options_.text_file);
    if (!text) return fail(console_, text.error());
    Status status = prepare(*text);
    if (!status) return fail(console_, status.error());
    status = measure();
    const bool cancelled = cancel_signal() != 0;
    if (!status && !cancelled) return fail(console_, status.error());
    if (cancelled && run_.save) console_.warning("interrupted: no logits were saved");
    if (report_.result.loss.n() > 0) {
        report_.model = options_.model;
        report_.arch = engine_->spec().arch;
        report_.name = engine_->spec().name;
        report_.model_bytes = engine_->file().file_size();
        report_.n_text_tokens = tokens_.size();
        report_.saved_logits = options_.saved_logits;
        console_.answer(describe_perplexity(report_, options_.format));
    }
    if (cancelled) return static_cast<ExitCode>(128 + cancel_signal());
    if (run_.save) status = run_.save->finish();
    if (!status) return fail(console_, status.error());
    return output_status(console_);
}

}  // namespace

ExitCode command_perplexity(const PerplexityOptions& options, Console& console) {
    console.set_verbosity(options.verbosity);
    handle_faults(options.model, "");
    return PerplexityCommand(options, console).run();
}

}  // namespace picolm::app
