// picolm bench MODEL.gguf: the tests, one after the other, and how often each is run. The forms of
// the report are in bench_report.h.
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "app/bench_report.h"
#include "app/commands.h"
#include "app/signals.h"
#include "base/format.h"
#include "base/machine.h"
#include "base/machine_speed.h"
#include "cache/file_store.h"
#include "engine/session.h"

namespace picolm::app {
namespace {

using Test = BenchRow::Test;

constexpr double kPatience = 3;  // times --seconds that one run may be expected to take
constexpr uint32_t kLeastDecode = 4;
constexpr size_t kMostRead = size_t{1} << 30;  // more than the caches of any machine
constexpr double kReadSeconds = 5;
constexpr uint32_t kSweepPrefill = 128;  // the prompt length at fewer threads

Error cancelled() {
    return {ErrorKind::cancelled, "interrupted"};
}

// A folder for the cache file of the warm start.
class TemporaryFolder {
  public:
    TemporaryFolder() {
        std::error_code error;
        std::string pattern = std::filesystem::temp_directory_path(error) / "picolm-bench-XXXXXX";
        if (!error && mkdtemp(pattern.data())) path_ = pattern;
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    const std::string& path() const { return path_; }  // "": there is none

  private:
    std::string path_;
};

// What is measured with one number of threads.
struct Plan {
    uint32_t n_threads;
    std::vector<uint32_t> prefill, decode;  // ascending
    uint32_t warm;
};

class Bench {
  public:
    Bench(const BenchOptions& options, Console& console)
        : options_(options), console_(console), probe_pool_(read_cpu_facts().default_threads()) {}
    Status run();
    const BenchReport& report() const { return report_; }

  private:
    Result<std::unique_ptr<Engine>> open(uint32_t n_threads) const;
    void describe_machine();
    std::vector<Plan> make_plans();
    void fit_into_context(std::vector<uint32_t>& lengths, uint32_t most, const char* what);
    void fit_into_memory(Plan& plan);

    Status run_plan(const Plan& plan);
    Status read(const Plan& plan);
    Status prefill(const Plan& plan, uint32_t n_tokens);
    Status decode(const Plan& plan, uint32_t n_context);
    Status warm(const Plan& plan, uint32_t n_tokens);

    template <typename Once>
    Status repeat(BenchRow row, Once once);
    void skip(Test test, uint32_t n_tokens, uint32_t n_threads);
    bool too_long(double seconds) const;
    double probe();
    std::vector<TokenId> tokens(uint32_t n, uint32_t seed) const;
    Result<double> timed_prompt(Session& session, std::span<const TokenId> prompt);
    Result<double> timed_decode();

    const BenchOptions& options_;
    Console& console_;
    BenchReport report_;
    ThreadPool probe_pool_;  // the same for all rows, or their speeds could not be compared
    std::unique_ptr<Engine> engine_;
    std::unique_ptr<Session> session_;  // after what it uses
    uint32_t n_vocab_ = 0;
    uint32_t seed_ = 0;
    double read_rate_ = 0;     // bytes per second with the threads of this plan
    double prefill_rate_ = 0;  // tokens per second with the threads of this plan
    uint32_t n_filled_ = 0;    // positions of the session that a decode test has filled
};

Result<std::unique_ptr<Engine>> Bench::open(uint32_t n_threads) const {
    EngineOptions options;
    options.n_threads = n_threads;
    options.max_chunk = options_.max_chunk;
    options.kv_types = options_.kv_types;
    TRY(std::unique_ptr<Engine> engine, Engine::open(options_.model, std::move(options)));
    set_model_bytes(
        {engine->file().header_bytes().data(), static_cast<size_t>(engine->file().file_size())});
    return engine;
}

void Bench::describe_machine() {
    report_.model = options_.model;
    report_.arch = engine_->spec().arch;
    report_.name = engine_->spec().name;
    report_.model_bytes = engine_->file().file_size();
    report_.weight_bytes_per_token = engine_->weight_bytes_per_token();
    report_.isa = engine_->kernels().name;
    report_.cpu = read_cpu_name();
    report_.n_cores = read_cpu_facts().n_cores;
    report_.n_decode = options_.n_decode;
    report_.max_chunk = options_.max_chunk;
    report_.kv_types = kv_types_name(options_.kv_types);
    n_vocab_ = engine_->spec().n_vocab;
}

void Bench::fit_into_context(std::vector<uint32_t>& lengths, uint32_t most, const char* what) {
    for (uint32_t& length : lengths) {
        if (length <= most) continue;
        console_.info(
            format("Note: %s %u does not fit into the model's context of %u; measured: %u", what,
                   length, engine_->max_context(), most));
        length = most;
    }
    std::sort(lengths.begin(), lengths.end());
    lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
}

std::vector<Plan> Bench::make_plans() {
    const CpuFacts cpu = read_cpu_facts();
    const auto n_cpus = static_cast<uint32_t>(cpu.allowed.size());
    const uint32_t n_ctx = engine_->max_context();
    Plan all{cpu.default_threads(), options_.prefill, options_.decode,
             std::min(options_.warm, n_ctx)};
    fit_into_context(all.prefill, n_ctx, "prefill");
    fit_into_context(all.decode, n_ctx - std::min(n_ctx - 1, options_.n_decode), "decode at");
    std::vector<Plan> plans;
    for (uint32_t n : options_.threads) {
        if (n == 0) n = cpu.default_threads();
        if (n > n_cpus)
            console_.info(
                format("Note: -t %u is more than the %u CPUs this process may use: %u threads", n,
                       n_cpus, n_cpus));
        plans.push_back(all);
        plans.back().n_threads = std::min(n, n_cpus);
        all.warm = 0;  // once is enough
    }
    if (!plans.empty()) return plans;
    plans.push_back(all);
    Plan some = all;
    some.warm = 0;
    const auto above = std::upper_bound(some.prefill.begin(), some.prefill.end(), kSweepPrefill);
    if (!some.prefill.empty())
        some.prefill = {above == some.prefill.begin() ? *above : *(above - 1)};
    if (!some.decode.empty()) some.decode.resize(1);
    for (some.n_threads = 1; some.n_threads < all.n_threads; some.n_threads *= 2)
        plans.push_back(some);
    return plans;
}

void Bench::fit_into_memory(Plan& plan) {
    const MemoryFacts machine = read_memory_facts();
    while (plan.decode.size() > 1 &&
           !engine_->plan(plan.decode.back() + options_.n_decode).check(machine)) {
        console_.info(format("Note: a context of %u does not fit into the memory of this machine",
                             plan.decode.back()));
        plan.decode.pop_back();
    }
}

double Bench::probe() {
    const double speed = measure_core_speed(probe_pool_);
    report_.best_core_speed = std::max(report_.best_core_speed, speed);
    return speed;
}

bool Bench::too_long(double seconds) const {
    return options_.row_seconds > 0 && seconds > kPatience * options_.row_seconds;
}

void Bench::skip(Test test, uint32_t n_tokens, uint32_t n_threads) {
    report_.rows.push_back({.test = test, .n_tokens = n_tokens, .n_threads = n_threads});
}

// `once` gives one sample. Runs it as often as options say, but not longer.
template <typename Once>
Status Bench::repeat(BenchRow row, Once once) {
    const double before = probe(), start = monotonic_seconds();
    double next_end = 0;  // when another run is expected to end, from the start
    do {
        console_.status(format("%s, %u threads: run %zu of %u", row_name(row).c_str(),
                               row.n_threads, row.samples.size() + 1, options_.runs));
        if (cancel_signal() != 0) return cancelled();
        TRY(const double sample, once());
        row.samples.push_back(sample);
        const auto n = static_cast<double>(row.samples.size());
        next_end = (monotonic_seconds() - start) * (n + 1) / n;
    } while (row.samples.size() < options_.runs &&
             (options_.row_seconds == 0 || next_end <= options_.row_seconds));
    row.core_speed = std::min(before, probe());
    if (const std::optional<ProcessMemory> memory = read_process_memory())
        report_.peak_anonymous = std::max(report_.peak_anonymous, memory->anonymous);
    report_.rows.push_back(std::move(row));
    return {};
}

// Any tokens do; two seeds that follow each other have no prefix in common.
std::vector<TokenId> Bench::tokens(uint32_t n, uint32_t seed) const {
    std::vector<TokenId> result(n);
    for (uint32_t i = 0; i < n; ++i)
        result[i] = static_cast<TokenId>((uint64_t{i} * 7919 + seed) % n_vocab_);
    return result;
}

// Seconds until the logits behind the prompt are there.
Result<double> Bench::timed_prompt(Session& session, std::span<const TokenId> prompt) {
    SyncCallbacks callbacks;
    callbacks.cancel = &cancel_flag();
    const double start = monotonic_seconds();
    TRY(session.sync(prompt, callbacks));
    TRY(session.logits());
    return monotonic_seconds() - start;
}

// Tokens per second. The tokens are given, so that none ends the answer.
Result<double> Bench::timed_decode() {
    const std::vector<TokenId> next = tokens(options_.n_decode, seed_++);
    const uint32_t room = session_->n_ctx() - static_cast<uint32_t>(session_->tokens().size());
    const uint32_t n = std::min(options_.n_decode, room);
    const double start = monotonic_seconds();
    double seconds = 0;
    uint32_t n_done = 0;
    while (n_done < n) {
        if (cancel_signal() != 0) return cancelled();
        TRY(session_->append(next[n_done]));
        TRY(session_->logits());
        ++n_done;
        seconds = monotonic_seconds() - start;
        if (options_.row_seconds > 0 && n_done >= kLeastDecode && seconds > options_.row_seconds)
            break;
    }
    return n_done / std::max(seconds, 1e-9);
}

Status Bench::read(const Plan& plan) {
    const MemoryFacts memory = read_memory_facts();
    size_t n_bytes = std::min<size_t>(kMostRead, static_cast<size_t>(engine_->file().file_size()));
    // What is not in memory would measure the disk.
    if (memory.usable() > 0)
        n_bytes = std::min<size_t>(n_bytes, static_cast<size_t>(memory.usable() / 2));
    if (n_bytes < 4096) return {};
    const Bytes bytes(engine_->file().header_bytes().data(), n_bytes);
    BenchRow row{.test = Test::read, .n_threads = plan.n_threads};
    const double before = probe();
    ThreadPool pool(plan.n_threads);
    read_rate_ = 0;
    for (const double rate : measure_read_rates(pool, bytes, options_.runs, kReadSeconds)) {
        read_rate_ = std::max(read_rate_, rate);
        row.samples.push_back(rate * 1e-9);
    }
    row.core_speed = std::min(before, probe());
    report_.rows.push_back(std::move(row));
    return {};
}

Status Bench::prefill(const Plan& plan, uint32_t n_tokens) {
    if (prefill_rate_ > 0 && too_long(n_tokens / prefill_rate_)) {
        skip(Test::prefill, n_tokens, plan.n_threads);
        return {};
    }
    const auto once = [&]() -> Result<double> {
        TRY(const double seconds, timed_prompt(*session_, tokens(n_tokens, seed_++)));
        return n_tokens / std::max(seconds, 1e-9);
    };
    TRY(repeat({Test::prefill, n_tokens, plan.n_threads}, once));
    prefill_rate_ = median(report_.rows.back().samples);
    return {};
}

Status Bench::decode(const Plan& plan, uint32_t n_context) {
    // A token needs one in front of it.
    const std::vector<TokenId> context = tokens(std::max(n_context, 1u), 0);
    if (prefill_rate_ > 0 && too_long((n_context - n_filled_) / prefill_rate_)) {
        skip(Test::decode, n_context, plan.n_threads);
        return {};
    }
    const auto once = [&]() -> Result<double> {
        TRY(timed_prompt(*session_, context));  // drops what the run before has added
        return timed_decode();
    };
    console_.status(format("decode at %u: filling the context", n_context));
    TRY(timed_prompt(*session_, context));
    n_filled_ = n_context;
    TRY(repeat({Test::decode, n_context, plan.n_threads}, once));
    BenchRow& done = report_.rows.back();
    if (read_rate_ > 0)
        done.read_fraction =
            median(done.samples) * static_cast<double>(report_.weight_bytes_per_token) / read_rate_;
    return {};
}

// Opening the model, an exact hit in a cache file, and the logits of the first token.
Status Bench::warm(const Plan& plan, uint32_t n_tokens) {
    while (prefill_rate_ > 0 && n_tokens > 1 && too_long(n_tokens / prefill_rate_)) n_tokens /= 2;
    const TemporaryFolder folder;
    if (folder.path().empty()) {
        console_.warning("the warm start is not measured: no temporary folder can be made");
        return {};
    }
    const uint64_t limit = 2 * engine_->plan(n_tokens).kv + (uint64_t{1} << 20);
    cache::FileStore store(folder.path() + "/warm.kvc", {.limit_bytes = limit});
    const SessionOptions session_options{.n_ctx = n_tokens, .store = &store};
    const std::vector<TokenId> prompt = tokens(n_tokens, 0);

    session_.reset();
    TRY(session_, Session::create(*engine_, session_options));
    TRY(timed_prompt(*session_, prompt));
    const auto saved = session_->finish_saving();
    session_.reset();
    if (!saved || !*saved) {
        console_.warning("the warm start is not measured: " +
                         (saved ? saved->error().text : "nothing was saved"));
        return {};
    }
    const auto once = [&]() -> Result<double> {
        engine_.reset();
        const double start = monotonic_seconds();
        TRY(engine_, open(plan.n_threads));
        TRY(const std::unique_ptr<Session> session, Session::create(*engine_, session_options));
        TRY(const SyncReport synced, session->sync(prompt));
        TRY(session->logits());
        const double seconds = monotonic_seconds() - start;
        if (synced.n_computed > 0)
            return Error{ErrorKind::io, format("the cache file in %s was lost while it was used",
                                               folder.path().c_str())};
        return seconds * 1e3;
    };
    return repeat({Test::warm, n_tokens, plan.n_threads}, once);
}

Status Bench::run_plan(const Plan& wanted) {
    Plan plan = wanted;
    session_.reset();
    engine_.reset();
    TRY(engine_, open(plan.n_threads));
    fit_into_memory(plan);
    uint32_t most = plan.warm;
    if (!plan.prefill.empty()) most = std::max(most, plan.prefill.back());
    if (!plan.decode.empty())
        most = std::max(most, std::max(plan.decode.back(), 1u) + options_.n_decode);
    most = std::clamp(most, 1u, engine_->max_context());
    TRY(engine_->plan(most).check(read_memory_facts()));
    TRY(session_, Session::create(*engine_, {.n_ctx = most}));
    prefill_rate_ = 0;
    n_filled_ = 0;
    TRY(read(plan));
    // Touches the scratch memory, which no test should pay for.
    if (!plan.prefill.empty()) TRY(timed_prompt(*session_, tokens(plan.prefill.front(), seed_++)));
    for (const uint32_t n_tokens : plan.prefill) TRY(prefill(plan, n_tokens));
    for (const uint32_t n_context : plan.decode) TRY(decode(plan, n_context));
    if (plan.warm > 0) TRY(warm(plan, plan.warm));
    return {};
}

Status Bench::run() {
    TRY(engine_, open(0));
    describe_machine();
    probe();  // wakes up a processor that saves power
    const std::vector<Plan> plans = make_plans();
    for (const Plan& plan : plans) report_.threads.push_back(plan.n_threads);
    for (const Plan& plan : plans) TRY(run_plan(plan));
    return {};
}

}  // namespace

ExitCode command_bench(const BenchOptions& options, Console& console) {
    handle_faults(options.model, "");
    handle_cancel();
    Bench bench(options, console);
    const Status status = bench.run();
    console.end_progress();
    BenchReport report = bench.report();
    if (!status && cancel_signal() == 0) return fail(console, status.error());
    if (const std::optional<ProcessMemory> memory = read_process_memory())
        report.peak_resident = memory->peak;
    console.answer(describe_bench(report, options.format));
    if (cancel_signal() != 0) return static_cast<ExitCode>(128 + cancel_signal());
    return output_status(console);
}

}  // namespace picolm::app
