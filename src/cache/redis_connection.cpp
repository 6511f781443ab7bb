#include "cache/redis_connection.h"

#ifdef PICOLM_HIREDIS

#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/format.h"
#include "cache/host_lookup.h"

namespace picolm::cache {
namespace {

constexpr size_t kChunk = 64 << 10;     // bytes taken from the socket at once
constexpr size_t kMostElements = 4096;  // of an array; we ask for fewer

// hiredis allocates an array by the count that the server claims; here a large one is refused.
decltype(redisReplyObjectFunctions::createArray) default_array = nullptr;
template <typename Count>
void* bounded_array(const redisReadTask* task, Count n) {
    return n <= static_cast<Count>(kMostElements) ? default_array(task, n) : nullptr;
}

redisReplyObjectFunctions* bounded_functions(const redisReader& reader) {
    static redisReplyObjectFunctions functions = [&] {
        redisReplyObjectFunctions all = *reader.fn;
        default_array = all.createArray;
        all.createArray = bounded_array;
        return all;
    }();
    return &functions;
}

std::string_view text_of(const redisReply& reply) {
    const bool has = reply.type == REDIS_REPLY_STRING || reply.type == REDIS_REPLY_STATUS ||
                     reply.type == REDIS_REPLY_ERROR;
    return has && reply.str ? std::string_view(reply.str, reply.len) : std::string_view();
}

RedisReply converted(const redisReply& from) {
    using Type = RedisReply::Type;
    RedisReply reply;
    reply.text = text_of(from);
    switch (from.type) {
        case REDIS_REPLY_STRING:
            reply.type = Type::text;
            break;
        case REDIS_REPLY_STATUS:
            reply.type = Type::status;
            break;
        case REDIS_REPLY_ERROR:
            reply.type = Type::error;
            break;
        case REDIS_REPLY_INTEGER:
            reply.type = Type::integer;
            reply.integer = from.integer;
            break;
        case REDIS_REPLY_ARRAY:
            reply.type = Type::array;
            for (size_t i = 0; i < from.elements; ++i) {
                const redisReply& item = *from.element[i];
                reply.items.push_back(text_of(item));
                // SCAN: a cursor and an array of keys; flat is as good.
                for (size_t j = 0; item.type == REDIS_REPLY_ARRAY && j < item.elements; ++j)
                    reply.items.push_back(text_of(*item.element[j]));
            }
            break;
        default:
            break;
    }
    return reply;
}

class Connection : public RedisConnection {
  public:
    Connection(redisContext* context, const RedisAddress& address)
        : RedisConnection(address.shown()),
          context_(context),
          reader_(redisReaderCreate()),
          timeout_ms_(static_cast<int>(address.timeout_ms)),
          chunk_(kChunk) {
        if (reader_) reader_->fn = bounded_functions(*reader_);
    }
    ~Connection() override {
        if (reader_) redisReaderFree(reader_);
        redisFree(context_);
    }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    Status greet(const RedisAddress& address);
    void add(std::initializer_list<std::string_view> words) override;
    Status read(size_t max_reply, const std::function<void(const RedisReply&)>& take) override;

  private:
    Error failed(const std::string& why) const { return {ErrorKind::io, place() + ": " + why}; }
    // Waits until the server takes or gives something, and moves it.
    Status move_bytes();
    Status take_replies(size_t max_reply, const std::function<void(const RedisReply&)>& take);

    redisContext* context_;
    redisReader* reader_;
    int timeout_ms_;
    std::vector<char> chunk_;
    std::string out_;
    size_t n_sent_ = 0;        // of out_
    size_t n_awaited_ = 0;     // replies
    size_t n_unanswered_ = 0;  // bytes that came since the last whole reply
    Status status_;
};

Status Connection::greet(const RedisAddress& address) {
    const int flags = fcntl(context_->fd, F_GETFL);
    if (!reader_ || flags < 0 || fcntl(context_->fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return failed("the connection cannot be used");
    bool refused = false;
    std::string why;
    if (!address.password.empty()) {
        if (address.user.empty())
            add({"AUTH", address.password});
        else
            add({"AUTH", address.user, address.password});
        TRY(read(64 << 10, [&](const RedisReply& reply) {
            // Only the code of the answer is shown: the text may repeat what was sent.
            refused = reply.type != RedisReply::Type::status;
            why = printable(reply.text.substr(0, reply.text.find(' ')), 20);
        }));
        if (refused) return failed("the server refuses the user or the password (" + why + ")");
    }
    if (address.db == 0) return {};
    add({"SELECT", std::to_string(address.db)});
    TRY(read(64 << 10, [&](const RedisReply& reply) {
        refused = reply.type != RedisReply::Type::status;
        why = printable(reply.text, 200);
    }));
    if (refused) return failed(why);
    return {};
}

void Connection::add(std::initializer_list<std::string_view> words) {
    out_ += format("*%zu\r\n", words.size());
    for (const std::string_view word : words) {
        out_ += format("$%zu\r\n", word.size());
        out_ += word;
        out_ += "\r\n";
    }
    ++n_awaited_;
}

Status Connection::move_bytes() {
    using std::chrono::milliseconds;
    const bool sending = n_sent_ < out_.size();
    pollfd wait{context_->fd, static_cast<short>(sending ? POLLIN | POLLOUT : POLLIN), 0};
    const auto left = std::chrono::ceil<milliseconds>(deadline_ - Clock::now()).count();
    const int ms = static_cast<int>(std::clamp<long long>(left, 0, timeout_ms_));
    const int ready = poll(&wait, 1, ms);
    if (ready < 0 && errno == EINTR) return {};
    if (ready < 0) return failed(std::strerror(errno));
    if (ready == 0) return failed(format("no answer within %d ms", ms));
    if (wait.revents & POLLOUT) {
        // A connection that is gone is an error here, not a signal.
        const ssize_t n =
            send(context_->fd, out_.data() + n_sent_, out_.size() - n_sent_, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR) return failed(std::strerror(errno));
        n_sent_ += n > 0 ? static_cast<size_t>(n) : 0;
    }
    if (!(wait.revents & (POLLIN | POLLHUP | POLLERR))) return {};
    const ssize_t n = recv(context_->fd, chunk_.data(), chunk_.size(), 0);
    if (n == 0) return failed("the server closed the connection");
    if (n < 0 && errno != EAGAIN && errno != EINTR) return failed(std::strerror(errno));
    n_unanswered_ += n > 0 ? static_cast<size_t>(n) : 0;
    if (n > 0 && redisReaderFeed(reader_, chunk_.data(), static_cast<size_t>(n)) != REDIS_OK)
        return failed(reader_->errstr);
    return {};
}

Status Connection::take_replies(size_t max_reply,
                                const std::function<void(const RedisReply&)>& take) {
    while (n_awaited_ > 0) {
        void* got = nullptr;
        if (redisReaderGetReply(reader_, &got) != REDIS_OK)
            return failed("this is no Redis server: " + printable(reader_->errstr, 100));
        if (got == nullptr) {
            if (n_unanswered_ > max_reply + chunk_.size())
                return failed("a reply is larger than what was asked for");
            return {};
        }
        --n_awaited_;
        n_unanswered_ = 0;
        take(converted(*static_cast<redisReply*>(got)));
        freeReplyObject(got);
    }
    return {};
}

Status Connection::read(size_t max_reply, const std::function<void(const RedisReply&)>& take) {
    // After a failure replies would be taken for those of other commands.
    while (n_awaited_ > 0 && status_) {
        status_ = late() ? failed("it takes too long") : move_bytes();
        if (status_) status_ = take_replies(max_reply, take);
    }
    out_.clear();
    n_sent_ = 0;
    broken_ = !status_;
    return status_;
}

}  // namespace

bool redis_built() {
    return true;
}

Result<std::unique_ptr<RedisConnection>> RedisConnection::open(const RedisAddress& address) {
    const auto end = Clock::now() + std::chrono::milliseconds(address.timeout_ms);
    const auto left = [&] {
        return std::max(std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()),
                        std::chrono::milliseconds(1));
    };
    auto hosts = addresses_of(address.host, left());
    std::string why = hosts ? "" : hosts.error().text;
    for (size_t i = 0; hosts && i < hosts->size(); ++i) {
        const auto ms = left().count();
        const timeval timeout{static_cast<time_t>(ms / 1000),
                              static_cast<suseconds_t>(ms % 1000 * 1000)};
        redisContext* context = redisConnectWithTimeout((*hosts)[i].c_str(), address.port, timeout);
        if (context == nullptr) return Error{ErrorKind::no_memory, "no memory for a connection"};
        auto connection = std::make_unique<Connection>(context, address);
        if (context->err) {
            why = printable(context->errstr, sizeof context->errstr);
            continue;
        }
        TRY(connection->greet(address));
        return std::unique_ptr<RedisConnection>(std::move(connection));
    }
    return Error{ErrorKind::io, address.shown() + ": " + why};
}

}  // namespace picolm::cache

#else

namespace picolm::cache {

bool redis_built() {
    return false;
}

Result<std::unique_ptr<RedisConnection>> RedisConnection::open(const RedisAddress&) {
    return Error{ErrorKind::unsupported, "this program was built without Redis (hiredis)"};
}

}  // namespace picolm::cache

#endif
