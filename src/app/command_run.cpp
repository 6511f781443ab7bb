// picolm MODEL.gguf: prompt -> sync -> generate -> wait for the saving -> statistics.
#include <algorithm>
#include <optional>
#include <random>

#include "app/commands.h"
#include "app/open_model.h"
#include "app/prompt.h"
#include "app/report.h"
#include "app/signals.h"
#include "base/format.h"
#include "base/machine.h"
#include "engine/session.h"

namespace picolm::app {
namespace {

void show_notes(Console& console, const std::vector<cache::Note>& notes) {
    for (const cache::Note& note : notes) console.log(note.level, note.text);
}

class Run {
  public:
    Run(const RunOptions& options, Console& console, double start)
        : options_(options), console_(console), sampler_(options.sampler) {
        times_.start = start;
    }
    ExitCode run();

  private:
    Status open();
    Status prepare(const std::string& prompt);
    Status sync();
    Status generate();
    void finish_saving();
    void show_statistics();
    void write_statistics(ExitCode code);
    uint32_t planned_positions() const;

    const RunOptions& options_;
    Console& console_;
    SamplerOptions sampler_;
    RunTimes times_;
    std::unique_ptr<Engine> engine_;
    std::unique_ptr<cache::Store> store_;
    std::unique_ptr<Session> session_;  // after what it uses
    std::vector<TokenId> tokens_;
    std::optional<SyncReport> synced_;
    std::optional<GenerateReport> generated_;
    std::optional<cache::SaveReport> saved_;
};

Status Run::open() {
    TRY(engine_, open_engine(options_, console_, options_.cache.strict));
    times_.loaded = monotonic_seconds();
    return {};
}

Status Run::prepare(const std::string& prompt) {
    TRY(tokens_, encode_prompt(engine_->tokenizer(), prompt, options_.no_bos, console_));
    SessionOptions session = session_options(options_, *engine_, console_);
    store_ = open_store(options_.cache);
    session.store = store_.get();
    TRY(session_, Session::create(*engine_, session));
    // A prompt that is too long has a better message than a plan that is too large.
    if (tokens_.size() <= session_->n_ctx())
        TRY(engine_->plan(planned_positions()).check(read_memory_facts()));
    if (options_.random_seed) {
        std::random_device device;
        sampler_.seed = uint64_t{device()} << 32 | device();
        console_.info(format("Seed: %llu", static_cast<unsigned long long>(sampler_.seed)));
    }
    console_.info(
        format("Prompt: %zu tokens, generating up to %u (temp=%.2f, top_p=%.2f, threads=%u)",
               tokens_.size(), options_.n_predict, sampler_.temperature, sampler_.top_p,
               engine_->n_threads()));
    return {};
}

uint32_t Run::planned_positions() const {
    return static_cast<uint32_t>(
        std::min<uint64_t>(session_->n_ctx(), uint64_t{tokens_.size()} + options_.n_predict));
}

Status Run::sync() {
    SyncCallbacks callbacks;
    callbacks.cancel = &cancel_flag();
    callbacks.progress = [this](uint32_t done, uint32_t total) {
        console_.progress("Prefill", done, total);
    };
    console_.progress("Prefill", 0, static_cast<uint32_t>(tokens_.size()));
    Result<SyncReport> synced = session_->sync(tokens_, callbacks);
    console_.end_progress();
    if (!synced) return synced.error();
    synced_ = std::move(*synced);
    if (!store_) return {};
    show_notes(console_, synced_->notes);
    if (synced_->n_loaded > 0)
        console_.info(format("KV cache loaded: %u positions from %s", synced_->n_loaded,
                             options_.cache.place().c_str()));
    if (synced_->n_reused() > 0)
        console_.info(format("Skipping %u cached prompt tokens", synced_->n_reused()));
    console_.info(describe_reuse(*synced_, session_->n_ctx()));
    return {};
}

Status Run::generate() {
    GenerateOptions generate_options;
    generate_options.sampler = sampler_;
    generate_options.max_tokens = options_.n_predict;
    generate_options.stop = options_.stop;
    generate_options.cancel = &cancel_flag();
    const double start = monotonic_seconds();
    Result<GenerateReport> generated = session_->generate(
        generate_options, [this](std::string_view text) { return console_.answer(text); });
    if (!generated) return generated.error();
    console_.answer("\n");
    generated_ = std::move(*generated);
    // A write that a signal cut short looks like a reader that left.
    if (cancel_signal() != 0 && generated_->reason == FinishReason::sink_closed)
        generated_->reason = FinishReason::cancelled;
    if (generated_->seconds_to_first > 0) times_.first_token = start + generated_->seconds_to_first;
    return {};
}

void Run::finish_saving() {
    const std::optional<Result<cache::SaveReport>> saved = session_->finish_saving();
    if (!saved) return;
    if (!*saved) {
        console_.warning(saved->error().text);
        return;
    }
    saved_ = **saved;
    const cache::SaveReport& report = *saved_;
    show_notes(console_, report.notes);
    if (report.bytes_written == 0 || report.positions_total == 0) return;
    console_.info(format("KV cache saved: %u positions to %s", report.positions_total,
                         options_.cache.place().c_str()));
    console_.detail(format("%u of them new, %s written, %u records removed to make room",
                           report.positions_new, format_bytes(report.bytes_written).c_str(),
                           report.n_evicted));
}

void Run::show_statistics() {
    const MemoryPlan plan = engine_->plan(0);
    console_.info("---");
    if (generated_)
        console_.info("Finish reason: " +
                      describe_finish(*generated_, options_.n_predict, session_->n_ctx()));
    else if (cancel_signal() != 0)
        console_.info("Finish reason: cancelled");
    console_.info(describe_statistics(
        synced_ ? &*synced_ : nullptr, generated_ ? &*generated_ : nullptr, times_,
        session_->kv_bytes() + plan.scratch + plan.logits, engine_->kv_types()));
}

// A failure is a warning: the answer is out already.
void Run::write_statistics(ExitCode code) {
    if (options_.stats_json.empty()) return;
    RunStatistics statistics;
    statistics.exit_code = static_cast<int>(code);
    statistics.engine = engine_.get();
    statistics.cache = options_.cache.place();
    statistics.synced = synced_ ? &*synced_ : nullptr;
    statistics.generated = generated_ ? &*generated_ : nullptr;
    statistics.saved = saved_ ? &*saved_ : nullptr;
    statistics.times = times_;
    const Status written = write_text_file(options_.stats_json, statistics_json(statistics) + "\n");
    if (!written) console_.warning("the statistics are lost: " + written.error().text);
}

ExitCode Run::run() {
    const Result<std::string> prompt = read_prompt(options_);
    if (!prompt) return fail(console_, prompt.error());
    Status status = open();
    if (!status) return fail(console_, status.error());
    status = prepare(*prompt);
    if (!status) return fail(console_, status.error());
    show_plan(*engine_, engine_->plan(planned_positions()), console_);
    if (store_ && console_.verbose())
        console_.detail("Cache identity: " + engine_->cache_identity());

    handle_cancel();
    status = sync();
    if (status) console_.info("---");
    if (status && options_.n_predict > 0) status = generate();
    times_.end = monotonic_seconds();
    finish_saving();

    const bool cancelled = cancel_signal() != 0;
    if (!status && !cancelled) return fail(console_, status.error());
    const ExitCode code =
        cancelled ? static_cast<ExitCode>(128 + cancel_signal()) : output_status(console_);
    show_statistics();
    write_statistics(code);
    return code;
}

}  // namespace

ExitCode command_run(const RunOptions& options, Console& console, double start) {
    console.set_verbosity(options.verbosity);
    handle_faults(options.model, options.cache.place());
    return Run(options, console, start).run();
}

}  // namespace picolm::app
