// The address of a Redis or Valkey server as a user writes it:
//   redis://[user:password@]host[:port][/db][?prefix=P&ttl=SECONDS&timeout=MS]
// Any part may be percent-encoded; an IPv6 address stands in brackets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace picolm::cache {

struct RedisAddress {
    std::string host;
    uint16_t port = 6379;
    std::string user;      // empty: the server's default user
    std::string password;  // empty: none
    uint32_t db = 0;
    std::string prefix = "picolm:";  // of every key
    uint32_t ttl_seconds = 0;        // after which the server drops what was saved; 0: never
    uint32_t timeout_ms = 250;       // of connecting, and of waiting for the server to go on

    // "redis://host:port/db", for people: never with the user or the password.
    std::string shown() const;
};

bool is_redis_url(std::string_view text);

// invalid: what is wrong and what is allowed. No piece of the text is repeated, as a misplaced
// character can turn any of them into a part of the password.
Result<RedisAddress> parse_redis_url(std::string_view text);

}  // namespace picolm::cache
