// The payloads of a server's records: fetched many at a time, verified, and kept in aligned memory.
#pragma once

#include <map>
#include <memory>
#include <span>

#include "cache/redis_index.h"
#include "cache/store.h"

namespace picolm::cache {

class RedisPayloads {
  public:
    // All must outlive this. What is read and what is wrong is added to `match`.
    RedisPayloads(RedisConnection& connection, const RedisIndex& index, Match& match)
        : connection_(connection), index_(index), match_(match) {}

    // Whether all of these can be used; what was fetched before is not fetched again. After an
    // error of the connection only what has arrived can be.
    bool verify(std::span<const uint32_t> ids);
    // Not worth a try: damaged, vanished, or not here and out of reach.
    bool failed(uint32_t id) const;
    // REQUIRES: verified.
    Bytes payload(uint32_t id) const { return read_.at(id).payload; }
    // Keeps all payloads alive.
    std::shared_ptr<const void> hold() const;
    // Of the connection.
    const Status& status() const { return status_; }

  private:
    struct Read {
        std::shared_ptr<uint8_t> memory;
        Bytes payload;  // empty: cannot be used
    };
    void fetch(std::span<const uint32_t> ids, uint64_t largest);
    void take(uint32_t id, const RedisReply& reply);

    RedisConnection& connection_;
    const RedisIndex& index_;
    Match& match_;
    std::map<uint32_t, Read> read_;
    Status status_;
};

}  // namespace picolm::cache
