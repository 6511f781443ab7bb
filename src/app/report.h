// The words of a run: what was reused, how it ended, how long it took. Text only; nothing is
// printed here.
#pragma once

#include <cstdint>
#include <string>

#include "app/options.h"
#include "engine/session.h"

namespace picolm::app {

std::string describe_model(const Engine& engine);

// "Reused 20 of 25 prompt tokens; ...": how far the cache went and where prompt and cache part.
std::string describe_reuse(const SyncReport& report, uint32_t n_ctx);

// "length (the context of 256 is full)".
std::string describe_finish(const GenerateReport& report, uint32_t max_tokens, uint32_t n_ctx);

// Moments on the clock of monotonic_seconds(); 0: did not come.
struct RunTimes {
    double start = 0;        // of the program
    double loaded = 0;       // the model is open
    double first_token = 0;  // the first token of the answer is known
    double end = 0;          // the answer is complete
};

// The last lines. `synced` and `generated` are nullptr for what did not happen.
std::string describe_statistics(const SyncReport* synced, const GenerateReport* generated,
                                const RunTimes& times, uint64_t state_bytes, KvTypes kv_types);

// The same and more, for machines. What did not happen is nullptr.
struct RunStatistics {
    int exit_code = 0;
    const Engine* engine = nullptr;
    std::string cache;  // its place; empty: none
    const SyncReport* synced = nullptr;
    const GenerateReport* generated = nullptr;
    const cache::SaveReport* saved = nullptr;
    RunTimes times;
};
std::string statistics_json(const RunStatistics& statistics);
// Replaces the file.
Status write_text_file(const std::string& path, const std::string& text);

}  // namespace picolm::app
