// Looking at everything of ours in a server, and writing records to it.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cache/record_log.h"
#include "cache/redis_connection.h"
#include "cache/redis_keys.h"
#include "cache/store.h"

namespace picolm::cache {

// The keys that begin with the prefix and `part` ("r:").
Result<std::set<std::string>> scan_keys(RedisConnection& connection, const RedisKeys& keys,
                                        const std::string& part);

// An identity that the server has, if a short look finds one.
std::optional<std::string> any_identity(RedisConnection& connection, const RedisKeys& keys);

// A record as the server keeps it, with its data checksum; nullopt when `payload` does not hand
// over exactly header.payload_size bytes, or memory is short.
std::optional<std::string> encode_record(RecordHeader header,
                                         const std::function<void(const Sink&)>& payload);

// Queues what makes up a record and looks at the answers later, many at a time.
class RedisWriter {
  public:
    RedisWriter(RedisConnection& connection, const RedisKeys& keys, uint32_t ttl_seconds)
        : connection_(connection), keys_(keys), ttl_(ttl_seconds) {}

    // `record`: of encode_record(). Sends when much is queued.
    Status put(const RecordHeader& header, std::string_view record);
    // A command whose answer does not matter.
    void add_minor(std::initializer_list<std::string_view> words);
    // Sends what is queued. io: the first error among the answers; what was taken before it stays.
    Status flush();

    uint64_t bytes_written() const { return bytes_written_; }

  private:
    RedisConnection& connection_;
    const RedisKeys& keys_;
    uint32_t ttl_;
    std::vector<RedisReply::Type> expected_;  // of each queued command; nil: anything will do
    uint64_t queued_bytes_ = 0;
    uint64_t bytes_written_ = 0;
};

}  // namespace picolm::cache
