#include "cache/redis_store.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "cache/chains.h"
#include "cache/redis_index.h"
#include "cache/redis_payloads.h"
#include "cache/redis_scan.h"
#include "cache/verified_walk.h"

namespace picolm::cache {
namespace {

constexpr int kMostWaits = 20;              // timeouts that all of a load may take
constexpr uint64_t kSlowestRate = 1 << 20;  // bytes per second that are waited for when saving

// The note about other models and settings, as far as one look finds any.
void note_other_identity(RedisConnection& connection, const RedisKeys& keys, const Query& query,
                         Match& match) {
    const std::optional<std::string> other = any_identity(connection, keys);
    if (!other) return;
    match.notes.push_back(
        {LogLevel::info,
         format("%s holds nothing for this model and setting yet, but for "
                "others (%s)",
                connection.place().c_str(), describe_difference(*other, query.identity).c_str())});
}

}  // namespace

RedisStore::RedisStore(RedisAddress address, RedisStoreOptions options)
    : address_(std::move(address)), options_(options), keys_{address_.prefix} {}

Status RedisStore::check_server() const {
    TRY(const auto connection, RedisConnection::open(address_));
    connection->add({"PING"});
    Status status;
    TRY(connection->read(64 << 10, [&](const RedisReply& reply) {
        if (reply.is_error())
            status = Error{ErrorKind::io, connection->place() + ": " + printable(reply.text, 200)};
    }));
    return status;
}

RedisConnection::Clock::time_point RedisStore::deadline(uint64_t bytes) const {
    const auto milliseconds = std::chrono::milliseconds(uint64_t{address_.timeout_ms} * kMostWaits +
                                                        bytes * 1000 / kSlowestRate);
    return RedisConnection::Clock::now() + milliseconds;
}

Match RedisStore::find(const Query& query) {
    return match(query, false);
}

Match RedisStore::load(const Query& query) {
    return match(query, true);
}

Match RedisStore::match(const Query& query, bool with_payload) {
    Match match;
    if (given_up_) return match;
    const Status filled = fill(query, with_payload, match);
    if (!filled)
        match.notes.push_back(
            {LogLevel::warning, (match.matched > 0 ? "the KV cache is used only in part: "
                                 : query.first > 0 ? "no more of the KV cache is used: "
                                                   : "no KV cache is used: ") +
                                    filled.error().text});
    return match;
}

Status RedisStore::fill(const Query& query, bool with_payload, Match& match) {
    auto opened = RedisConnection::open(address_);
    if (!opened) {
        given_up_ = true;
        return opened.error();
    }
    RedisConnection& connection = **opened;
    connection.set_deadline(deadline(0));
    RedisIndex index(connection, keys_);
    const Chains chains(index, query);
    Status status = index.read(chains.keys(), query.first, false);
    if (status && index.identity() == query.identity) {
        RedisPayloads payloads(connection, index, match);
        match_verified(chains, query, with_payload, payloads, match);
        status = payloads.status();
        match.saved_positions = match.matched;
        if (status) match.saved_positions = chains.longest(match.matched);
    } else if (status && !index.identity() && index.damaged().empty()) {
        note_other_identity(connection, keys_, query, match);
    }
    match.n_damaged += static_cast<uint32_t>(index.damaged().size());
    for (const std::string& key : index.damaged())
        match.notes.push_back({LogLevel::warning, printable(key, 300) + " in " + place() +
                                                      " is damaged and is not used"});
    // A slow server may still take what is saved beside the answer; any other failure will repeat.
    if (!status && !connection.late()) given_up_ = true;
    return status;
}

Result<SaveReport> RedisStore::trim(uint64_t) {
    return Error{ErrorKind::unsupported,
                 place() +
                     " is not trimmed from here: the server's own eviction (maxmemory) "
                     "limits it"};
}

}  // namespace picolm::cache
