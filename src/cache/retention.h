// What of a log is alive, and what of it to keep when it is rewritten. Pure functions over headers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache/record_log.h"

namespace picolm::cache {

inline constexpr int64_t kAtRoot = -1;
inline constexpr int64_t kDead = -2;

struct Liveness {
    // Per entry: the entry that holds the position before it, kAtRoot, or kDead: not reachable from
    // position 0 of a known identity, or a repetition. An identity record is kAtRoot or kDead.
    std::vector<int64_t> before;
    uint64_t live_bytes = 0;
};
// `known`: an identity that counts as present even if its record is lost, as it is about to be
// added.
Liveness find_live(std::span<const LogEntry> entries, std::optional<Key128> known = std::nullopt);

// Per entry: whether it is among those that `stay` and still reachable when the others are gone.
std::vector<bool> reachable_without(std::span<const LogEntry> entries,
                                    const std::vector<bool>& stay);

// Chooses entries, in file order, that fit into `budget` bytes together with `chosen` (entries,
// which are kept anyway and not repeated in the answer) and `bytes` (their size and that of what is
// to be added): the newest first, each with all that comes before it, so that no kept record is
// unreachable.
std::vector<uint32_t> choose_newest(std::span<const LogEntry> entries, const Liveness& live,
                                    std::span<const uint32_t> chosen, uint64_t bytes,
                                    uint64_t budget);

}  // namespace picolm::cache
