// The prompt cache that the options name: a file, a folder, a server, or a folder in front of one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "cache/redis_url.h"
#include "cache/store.h"

namespace picolm::app {

struct CacheOptions {
    std::string file;  // --cache as given; empty when it names a server
    std::string folder;
    std::optional<cache::RedisAddress> server;  // with a password, never to be shown
    std::optional<uint64_t> limit;  // of the store's bytes; without one, the store's default
    bool read_only = false;
    bool strict = false;  // tell models apart by all their bytes

    // What was given, without passwords; empty: no cache.
    std::string place() const;
};

// The server that such a text names; its password may also be in PICOLM_REDIS_PASSWORD. invalid,
// unsupported: why it cannot be used.
Result<cache::RedisAddress> parse_server(const std::string& url);

// Moves a server's address out of `file`, and checks that what was given goes together.
Status settle(CacheOptions& options);

// nullptr: no cache.
std::unique_ptr<cache::Store> open_store(const CacheOptions& options);

}  // namespace picolm::app
