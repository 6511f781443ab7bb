// How a long text is cut into windows for measuring perplexity, and what of a window is scored. The
// convention of llama.cpp, so that the numbers can be compared: windows of n_ctx tokens that do
// not overlap, the first token of each replaced by the beginning-of-text token where the model
// wants one, and only the second half scored, so that every scored token has some context. With a
// stride, windows overlap and each scores its last `stride` tokens.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace picolm {

struct Windows {
    uint32_t n_ctx = 0;  // tokens of one window
    uint32_t step = 0;   // from the start of one to the start of the next, 1..n_ctx
    uint32_t first = 0;  // index in a window of the first token that is scored, 1..n_ctx - 1
    uint32_t n_windows = 0;

    uint32_t n_scored_each() const { return n_ctx - first; }
    uint64_t n_scored() const { return uint64_t{n_windows} * n_scored_each(); }
    // Of the text, from its start.
    uint64_t n_tokens() const { return n_ctx + uint64_t{n_windows - 1} * step; }

    friend bool operator==(const Windows&, const Windows&) = default;
};

// stride 0: none. max_windows 0: as many as the text holds. invalid: a window of fewer than 4
// tokens, a stride longer than a window, or a text that is too short for two windows (says how many
// tokens it has and how many are needed).
Result<Windows> cut_into_windows(uint64_t n_tokens, uint32_t n_ctx, uint32_t stride,
                                 uint32_t max_windows);

}  // namespace picolm
