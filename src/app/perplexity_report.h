// The forms of what `picolm perplexity` prints. No times and nothing of the machine: the same bytes
// everywhere.
#pragma once

#include <string>

#include "app/options.h"
#include "engine/perplexity.h"

namespace picolm::app {

struct PerplexityReport {
    std::string model;  // path
    std::string arch, name;
    uint64_t model_bytes = 0;
    size_t n_text_tokens = 0;
    std::string saved_logits;  // path of what was compared with; "": nothing
    PerplexityResult result;
};

// REQUIRES: a token was scored.
std::string describe_perplexity(const PerplexityReport& report, PerplexityFormat format);

// "24 windows of 512 tokens, the last 255 of each scored".
std::string describe_windows(const Windows& windows);

}  // namespace picolm::app
