// The prompt cache that the options name: a file or a folder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cache/store.h"

namespace picolm::app {

struct CacheOptions {
    std::string file;
    std::string folder;             // at most one of the two is given
    std::optional<uint64_t> limit;  // of the store's bytes; without one, the store's default
    bool read_only = false;
    bool strict = false;  // tell models apart by all their bytes

    // What was given; empty: no cache.
    const std::string& place() const { return folder.empty() ? file : folder; }
};

// nullptr: no cache.
std::unique_ptr<cache::Store> open_store(const CacheOptions& options);

}  // namespace picolm::app
