// One connection to a Redis or Valkey server: commands go out in a pipeline, replies come back in
// order, and nothing ever waits longer than it was told to. The only file that knows hiredis, and
// that a build without it changes.
//
// Threads: one at a time.
#pragma once

#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "cache/redis_url.h"

namespace picolm::cache {

// Whether this program was built with hiredis.
bool redis_built();

// What a server said. Who asks looks at the type: nothing about a reply is promised.
struct RedisReply {
    enum class Type { nil, status, error, integer, text, array };
    Type type = Type::nil;
    long long integer = 0;
    std::string_view text;                // of status, error and text
    std::vector<std::string_view> items;  // of an array: its texts, "" for what is none

    Bytes bytes() const { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }
    bool is_text() const { return type == Type::text; }
    bool is_error() const { return type == Type::error; }
    // A key of ours holds something that is not ours.
    bool is_wrong_type() const { return is_error() && text.starts_with("WRONGTYPE"); }
};

class RedisConnection {
  public:
    using Clock = std::chrono::steady_clock;

    // Connects, says who we are and chooses the database. io: not reached, or refused; unsupported:
    // built without hiredis.
    static Result<std::unique_ptr<RedisConnection>> open(const RedisAddress& address);
    virtual ~RedisConnection() = default;
    const std::string& place() const { return place_; }  // "redis://host:port/db"

    // The moment at which waiting ends whatever happens, beside the timeout, which bounds every
    // wait for the server to take or give some bytes.
    void set_deadline(Clock::time_point deadline) { deadline_ = deadline; }
    bool late() const { return Clock::now() >= deadline_; }

    // Whether a read() has failed: the connection cannot be used any more.
    bool broken() const { return broken_; }

    // Queues a command; it is sent by the next read().
    virtual void add(std::initializer_list<std::string_view> words) = 0;
    // Hands the replies to all queued commands to `take`, in order; a reply lives as long as the
    // call of `take`. No reply may have more than max_reply bytes.
    virtual Status read(size_t max_reply, const std::function<void(const RedisReply&)>& take) = 0;

  protected:
    explicit RedisConnection(std::string place) : place_(std::move(place)) {}
    Clock::time_point deadline_ = Clock::time_point::max();
    bool broken_ = false;

  private:
    std::string place_;
};

}  // namespace picolm::cache
