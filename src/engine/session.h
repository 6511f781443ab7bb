// Session: one mutable timeline of tokens. The caller hands over the whole prefix with sync(); the
// session decides what to keep, what to fetch from the cache and what to compute. Then generate()
// (or logits() and append(), token by token).
//
// The answer is the same bytes whatever was reused. One thread at a time; saving to the cache runs
// beside it on a thread of its own.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/store.h"
#include "decode/sampler.h"
#include "engine/engine.h"

namespace picolm {

struct SessionOptions {
    uint32_t n_ctx = 0;             // 0: Engine::max_context(), which is also the limit
    cache::Store* store = nullptr;  // must outlive the session; nullptr: no cache
};

// How sync() got there. n_prompt = n_kept + n_loaded + n_computed, but for one position that is
// computed again where recomputed_last says so.
struct SyncReport {
    uint32_t n_prompt = 0;
    uint32_t n_kept = 0;           // were in memory
    uint32_t n_loaded = 0;         // came from the cache
    uint32_t n_computed = 0;       // went through the layers
    bool recomputed_last = false;  // all positions were there, but not the hidden state of the last
    uint32_t cache_matched = 0;    // positions the cache shares with the prompt
    uint32_t cache_saved = 0;  // length of the saved chain that shares them: > cache_matched means
                               // that prompt and chain part there, or that the prompt ends there
    uint64_t cache_bytes_read = 0;  // payloads that were verified
    uint32_t cache_damaged = 0;     // records that were left out
    bool cache_incomplete = false;  // one of several stores lacks some of what was loaded
    double seconds = 0;
    std::vector<cache::Note> notes;  // what the cache has to say

    uint32_t n_reused() const { return n_prompt - n_computed; }
};

struct SyncCallbacks {
    // Positions present so far, of n_prompt; after every chunk.
    std::function<void(uint32_t done, uint32_t total)> progress;
    const std::atomic<bool>* cancel = nullptr;
};

enum class FinishReason {
    end_of_generation,  // the model ended its answer
    stop_string,        // one of the caller's stop strings
    length,             // max_tokens, or the context is full
    cancelled,          // cancel was set
    sink_closed,        // the sink wants no more
};

struct GenerateOptions {
    SamplerOptions sampler;
    uint32_t max_tokens = 256;
    std::vector<std::string> stop;
    const std::atomic<bool>* cancel = nullptr;
};

struct GenerateReport {
    FinishReason reason = FinishReason::length;
    uint32_t n_generated = 0;     // tokens of the answer; an end-of-generation token is not counted
    double seconds_to_first = 0;  // from the call to the first token
    double seconds = 0;
};

// Takes whole UTF-8 characters as they come; false: nobody listens any more.
using TextSink = std::function<bool(std::string_view)>;

class Session {
  public:
    // invalid: n_ctx is 0 after the defaults, or more than the engine allows.
    static Result<std::unique_ptr<Session>> create(Engine& engine, SessionOptions options);
    ~Session();

    uint32_t n_ctx() const { return options_.n_ctx; }
    const std::vector<TokenId>& tokens() const { return tokens_; }
    size_t kv_bytes() const { return kv_.bytes(); }

    // Makes the timeline equal to `tokens`, and starts saving what is new to the store. invalid:
    // no tokens, a token outside the vocabulary, or "prompt is too long: N tokens, maximum context
    // length is M" (nothing has been computed then). cancelled: what was computed is kept and
    // saved.
    Result<SyncReport> sync(std::span<const TokenId> tokens, const SyncCallbacks& callbacks = {});

    // Logits behind the last token: [n_vocab], valid until the next call. REQUIRES: sync()
    // succeeded.
    Result<std::span<const float>> logits();
    // Adds one token and computes it. invalid: the context is full.
    Status append(TokenId token);

    // REQUIRES: sync() succeeded.
    Result<GenerateReport> generate(const GenerateOptions& options, const TextSink& sink);

    // Logits of many positions: computes `tokens` from nothing and hands out the logits behind each
    // position from `from` on, in order, at most kLogitsAtOnce at a time. Neither reads the store
    // nor saves to it; no logits() before the next sync(). invalid: as sync(). An error of the sink
    // ends it.
    static constexpr uint32_t kLogitsAtOnce = 32;
    // logits: [n, n_vocab] behind the positions first, first + 1, ...; valid during the call.
    using LogitsSink =
        std::function<Status(uint32_t first, uint32_t n, std::span<const float> logits)>;
    Status evaluate(std::span<const TokenId> tokens, uint32_t from, const LogitsSink& sink,
                    const std::atomic<bool>* cancel = nullptr);

    // Waits for the saving that sync() started, if any. nullopt: there was nothing to save.
    std::optional<Result<cache::SaveReport>> finish_saving();

  private:
    struct SaveJob;

    Session(Engine& engine, SessionOptions options);
    Status check_prompt(std::span<const TokenId> tokens) const;
    void load_from_store(std::span<const TokenId> tokens, SyncReport& report);
    Status prefill(std::span<const TokenId> tokens, const SyncCallbacks& callbacks,
                   SyncReport& report);
    void start_saving(const SyncReport& report);

    Engine& engine_;
    SessionOptions options_;
    KvSequence kv_;
    std::vector<TokenId> tokens_;  // kv_ holds exactly these
    std::vector<float> hidden_;    // [n_embd] behind the last token, if hidden_valid_
    bool hidden_valid_ = false;
    std::vector<float> logits_;  // [n_vocab] of hidden_, if logits_valid_
    bool logits_valid_ = false;
    std::vector<float> hidden_rows_;  // [max_chunk, n_embd], only for evaluate()
    std::vector<float> logits_rows_;  // [kLogitsAtOnce, n_vocab], only for evaluate()
    std::unique_ptr<SaveJob> saving_;
};

}  // namespace picolm
