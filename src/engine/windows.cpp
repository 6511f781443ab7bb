#include "engine/windows.h"

#include <algorithm>

#include "base/format.h"

namespace picolm {

Result<Windows> cut_into_windows(uint64_t n_tokens, uint32_t n_ctx, uint32_t stride,
                                 uint32_t max_windows) {
    constexpr uint32_t kLeast = 4;
    if (n_ctx < kLeast)
        return Error{ErrorKind::invalid,
                     format("a window (-c) needs at least %u tokens, not %u", kLeast, n_ctx)};
    if (stride > n_ctx)
        return Error{ErrorKind::invalid,
                     format("--stride %u is longer than a window of %u tokens", stride, n_ctx)};
    Windows w;
    w.n_ctx = n_ctx;
    w.step = stride ? stride : n_ctx;
    // The first token of a window has nothing in front of it.
    w.first = stride ? std::max(1u, n_ctx - stride) : n_ctx / 2 + 1;
    const uint64_t needed = uint64_t{n_ctx} + w.step;
    if (n_tokens < needed) {
        const uint64_t fitting = stride ? 0 : n_tokens / 2;
        return Error{ErrorKind::invalid,
                     format("the text is too short: it has %llu tokens, and two windows of %u need "
                            "%llu; give a longer text",
                            static_cast<unsigned long long>(n_tokens), n_ctx,
                            static_cast<unsigned long long>(needed)) +
                         (fitting >= kLeast ? format(", or -c %llu at most",
                                                     static_cast<unsigned long long>(fitting))
                                            : "")};
    }
    const uint64_t n = (n_tokens - n_ctx) / w.step + 1;
    w.n_windows =
        static_cast<uint32_t>(std::min<uint64_t>(n, max_windows ? max_windows : UINT32_MAX));
    return w;
}

}  // namespace picolm
