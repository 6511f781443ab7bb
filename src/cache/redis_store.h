// A prompt cache in a Redis or Valkey server (redis_keys.h), shared by any number of prompts,
// models, processes and machines. docs/KVC.md.
//
// A server that is gone, stopped or unwilling costs its timeout once: afterwards this store does
// nothing more. Everything a server says is checked like a file: it can cost time, but not change
// an answer. What is kept is the server's business (maxmemory, ttl).
//
// Threads and processes: any number may call anything; each call has a connection of its own.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "cache/redis_connection.h"
#include "cache/redis_keys.h"
#include "cache/store.h"

namespace picolm::cache {

struct RedisStoreOptions {
    bool read_only = false;  // save() writes nothing
};

class RedisStore : public Store {
  public:
    explicit RedisStore(RedisAddress address, RedisStoreOptions options = {});

    // Whether the server is there and lets us in.
    Status check_server() const;

    Match find(const Query& query) override;
    Match load(const Query& query) override;
    Result<SaveReport> save(const SaveRequest& request) override;
    // unsupported: the server has its own limit.
    Result<SaveReport> trim(uint64_t limit_bytes) override;
    // Looks at every key of the server. Empty also when the server is not reached.
    std::vector<RecordInfo> list() override;
    Result<VerifyReport> verify(bool repair) override;
    Result<uint32_t> remove(const std::set<RecordName>& records) override;
    Result<SaveReport> add(std::span<const RecordInfo> records) override;

    std::string place() const { return address_.shown(); }

  private:
    Match match(const Query& query, bool with_payload);
    Status fill(const Query& query, bool with_payload, Match& match);
    Result<SaveReport> save_to(RedisConnection& connection, const SaveRequest& request);
    RedisConnection::Clock::time_point deadline(uint64_t bytes) const;

    RedisAddress address_;
    RedisStoreOptions options_;
    RedisKeys keys_;
    std::atomic<bool> given_up_ = false;
};

}  // namespace picolm::cache
