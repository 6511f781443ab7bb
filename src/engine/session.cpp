#include "engine/session.h"

#include <algorithm>
#include <new>
#include <system_error>
#include <thread>

#include "base/format.h"
#include "base/machine.h"

namespace picolm {
namespace {

uint32_t common_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
    const size_t n = std::min(a.size(), b.size());
    return static_cast<uint32_t>(
        std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(n), b.begin()).first -
        a.begin());
}

Bytes bytes_of(const std::vector<float>& values) {
    return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace

// A snapshot of what is to be saved, and the thread that saves it. The snapshot shares the pages:
// generation that goes on gets a copy of the last one.
struct Session::SaveJob {
    std::string identity;
    std::vector<TokenId> units;
    KvSequence kv;
    std::vector<float> hidden;  // empty: none
    cache::SaveRequest request;
    cache::Store& store;
    std::optional<Result<cache::SaveReport>> result;
    std::thread thread;

    SaveJob(cache::Store& to, KvSequence pages) : kv(std::move(pages)), store(to) {}
    ~SaveJob() { wait(); }
    void wait() {
        if (thread.joinable()) thread.join();
    }
    void start() {
        request.query.identity = identity;
        request.query.units = units;
        request.query.position_bytes = kv.geometry().position_bytes();
        request.hidden = bytes_of(hidden);
        request.payload = [this](uint32_t first, uint32_t n, const cache::Sink& sink) {
            kv.export_positions(first, n, sink);
        };
        try {
            thread = std::thread([this] { save(); });
        } catch (const std::system_error&) {
            save();  // no thread to be had: later is better than never
        }
    }
    void save() {
        try {
            result = store.save(request);
        } catch (const std::bad_alloc&) {
            result = Error{ErrorKind::no_memory, "cannot save the KV cache: out of memory"};
        }
    }
};

Session::Session(Engine& engine, SessionOptions options)
    : engine_(engine),
      options_(options),
      kv_(engine.kv_geometry()),
      hidden_(engine.spec().n_embd),
      logits_(engine.spec().n_vocab) {}

Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::create(Engine& engine, SessionOptions options) {
    if (options.n_ctx == 0) options.n_ctx = engine.max_context();
    if (options.n_ctx > engine.max_context())
        return Error{ErrorKind::invalid,
                     format("a context of %u was asked for; this model has at most %u",
                            options.n_ctx, engine.max_context())};
    return std::unique_ptr<Session>(new Session(engine, options));
}

Status Session::check_prompt(std::span<const TokenId> tokens) const {
    if (tokens.empty()) return Error{ErrorKind::invalid, "the prompt is empty"};
    if (tokens.size() > options_.n_ctx)
        return Error{ErrorKind::invalid,
                     format("prompt is too long: %zu tokens, maximum context length is %u",
                            tokens.size(), options_.n_ctx)};
    for (const TokenId token : tokens)
        if (token >= engine_.spec().n_vocab)
            return Error{ErrorKind::invalid, format("token %u is outside the vocabulary of %u",
                                                    token, engine_.spec().n_vocab)};
    return {};
}

Result<SyncReport> Session::sync(std::span<const TokenId> tokens, const SyncCallbacks& callbacks) {
    TRY(check_prompt(tokens));
    finish_saving();
    const double start = monotonic_seconds();
    SyncReport report;
    report.n_prompt = static_cast<uint32_t>(tokens.size());
    report.n_kept = common_prefix(tokens_, tokens);
    if (report.n_kept < std::max(tokens_.size(), tokens.size())) hidden_valid_ = false;
    logits_valid_ = logits_valid_ && hidden_valid_;
    kv_.truncate(report.n_kept);
    tokens_.resize(report.n_kept);
    // The same tokens as before: nothing to fetch or save.
    const bool all_in_memory = hidden_valid_;
    if (options_.store && !all_in_memory) load_from_store(tokens, report);

    if (tokens_.size() == tokens.size() && !hidden_valid_) {
        tokens_.pop_back();
        kv_.truncate(static_cast<uint32_t>(tokens_.size()));
        report.recomputed_last = true;
    }
    const Status done = prefill(tokens, callbacks, report);
    report.seconds = monotonic_seconds() - start;
    if (options_.store && !all_in_memory) start_saving(report);
    if (!done) return done.error();
    return report;
}

void Session::load_from_store(std::span<const TokenId> tokens, SyncReport& report) {
    const KvGeometry& geometry = kv_.geometry();
    cache::Query query;
    query.identity = engine_.cache_identity();
    query.units = tokens;
    query.max_positions = options_.n_ctx;
    query.position_bytes = geometry.position_bytes();
    query.hidden_bytes = bytes_of(hidden_).size();
    cache::Match match = options_.store->load(query);
    report.notes = std::move(match.notes);
    report.cache_matched = match.matched;
    report.cache_saved = match.saved_positions;
    report.cache_bytes_read = match.bytes_read;
    report.cache_damaged = match.n_damaged;
    report.cache_incomplete = match.incomplete;
    const uint32_t present = kv_.n_positions();
    for (const cache::Segment& s : match.segments) {
        const uint32_t from = std::max(s.from, present), end = s.from + s.used;
        if (from >= end) continue;
        if (!kv_.append_saved(s.first, s.n, from, end - from, s.payload, match.hold)) break;
    }
    report.n_loaded = kv_.n_positions() - present;
    tokens_.assign(tokens.begin(), tokens.begin() + kv_.n_positions());
    if (tokens_.size() == tokens.size() && !hidden_valid_ && !match.hidden.empty()) {
        std::copy_n(match.hidden.data(), match.hidden.size(),
                    reinterpret_cast<uint8_t*>(hidden_.data()));
        hidden_valid_ = true;
        logits_valid_ = false;
    }
}

Status Session::prefill(std::span<const TokenId> tokens, const SyncCallbacks& callbacks,
                        SyncReport& report) {
    Forward& forward = engine_.forward();
    while (tokens_.size() < tokens.size()) {
        const size_t at = tokens_.size();
        const size_t n = std::min<size_t>(forward.max_chunk(), tokens.size() - at);
        const bool last = at + n == tokens.size();
        hidden_valid_ = logits_valid_ = false;
        TRY(forward.run(kv_, tokens.subspan(at, n), last ? 1 : 0, hidden_.data(),
                        callbacks.cancel));
        hidden_valid_ = last;
        tokens_.insert(tokens_.end(), tokens.begin() + static_cast<ptrdiff_t>(at),
                       tokens.begin() + static_cast<ptrdiff_t>(at + n));
        report.n_computed += static_cast<uint32_t>(n);
        if (callbacks.progress)
            callbacks.progress(static_cast<uint32_t>(tokens_.size()), report.n_prompt);
    }
    return {};
}

void Session::start_saving(const SyncReport& report) {
    // Nothing was computed but perhaps the last token of a prefix of something longer.
    if (!report.cache_incomplete && tokens_.size() <= report.cache_matched &&
        (report.n_computed == 0 || report.cache_saved > report.cache_matched))
        return;
    if (tokens_.empty()) return;
    saving_ = std::make_unique<SaveJob>(*options_.store, kv_.share());
    SaveJob& job = *saving_;
    job.identity = engine_.cache_identity();
    job.units = tokens_;
    if (hidden_valid_) job.hidden = hidden_;
    job.request.query.hidden_bytes = bytes_of(hidden_).size();
    job.request.query.max_positions = options_.n_ctx;
    job.request.verified = report.cache_matched;
    job.start();
}

std::optional<Result<cache::SaveReport>> Session::finish_saving() {
    if (!saving_) return std::nullopt;
    saving_->wait();
    std::optional<Result<cache::SaveReport>> result = std::move(saving_->result);
    saving_.reset();
    return result;
}

Status Session::evaluate(std::span<const TokenId> tokens, uint32_t from, const LogitsSink& sink,
                         const std::atomic<bool>* cancel) {
    TRY(check_prompt(tokens));
    finish_saving();
    Forward& forward = engine_.forward();
    const size_t n_embd = engine_.spec().n_embd, n_vocab = engine_.spec().n_vocab;
    hidden_rows_.resize(forward.max_chunk() * n_embd);
    logits_rows_.resize(kLogitsAtOnce * n_vocab);
    hidden_valid_ = logits_valid_ = false;
    kv_.truncate(0);
    tokens_.clear();
    while (tokens_.size() < tokens.size()) {
        const auto at = static_cast<uint32_t>(tokens_.size());
        const auto n = static_cast<uint32_t>(
            std::min<size_t>(forward.max_chunk(), tokens.size() - tokens_.size()));
        const uint32_t end = at + n, n_wanted = end - std::clamp(from, at, end);
        TRY(forward.run(kv_, tokens.subspan(at, n), n_wanted, hidden_rows_.data(), cancel));
        tokens_.insert(tokens_.end(), tokens.begin() + at, tokens.begin() + end);
        for (uint32_t i = 0; i < n_wanted; i += kLogitsAtOnce) {
            const uint32_t n_rows = std::min(kLogitsAtOnce, n_wanted - i);
            TRY(forward.output_head(&hidden_rows_[i * n_embd], n_rows, logits_rows_.data()));
            TRY(sink(end - n_wanted + i, n_rows,
                     std::span<const float>(logits_rows_).first(n_rows * n_vocab)));
        }
    }
    return {};
}

Result<std::span<const float>> Session::logits() {
    if (!hidden_valid_)
        return Error{ErrorKind::invalid, "there are no logits before a prompt has been evaluated"};
    if (!logits_valid_) {
        TRY(engine_.forward().output_head(hidden_.data(), 1, logits_.data()));
        logits_valid_ = true;
    }
    return std::span<const float>(logits_);
}

Status Session::append(TokenId token) {
    if (tokens_.size() >= options_.n_ctx)
        return Error{ErrorKind::invalid, format("the context of %u is full", options_.n_ctx)};
    TRY(check_prompt({&token, 1}));
    hidden_valid_ = logits_valid_ = false;
    TRY(engine_.forward().run(kv_, {&token, 1}, 1, hidden_.data()));
    tokens_.push_back(token);
    hidden_valid_ = true;
    return {};
}

}  // namespace picolm
