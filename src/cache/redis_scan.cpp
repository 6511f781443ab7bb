#include "cache/redis_scan.h"

#include <algorithm>
#include <chrono>

#include "base/format.h"

namespace picolm::cache {
namespace {

constexpr size_t kSmallReply = 1 << 20;
constexpr uint64_t kPortion = 4 << 20;  // bytes that are queued before they are sent
constexpr int kShortLook = 4;           // rounds of about a thousand keys

// The prefix with what has a meaning in a pattern taken literally.
std::string pattern(const RedisKeys& keys, const std::string& part) {
    std::string text;
    for (const char c : keys.prefix + part) {
        if (std::string_view("*?[]^-\\").find(c) != std::string_view::npos) text += '\\';
        text += c;
    }
    return text + "*";
}

// One round; the cursor of the next one, "0" at the end.
Result<std::string> scan_round(RedisConnection& connection, const std::string& cursor,
                               const std::string& keys, std::set<std::string>& found) {
    connection.add({"SCAN", cursor, "MATCH", keys, "COUNT", "1000"});
    std::string next;
    TRY(connection.read(kSmallReply, [&](const RedisReply& reply) {
        for (const std::string_view item : reply.items) {
            if (next.empty())
                next = item;
            else if (!item.empty())
                found.emplace(item);
        }
        if (reply.is_error()) found.clear();
    }));
    if (next.empty())
        return Error{ErrorKind::io, connection.place() + ": the keys cannot be listed"};
    return next;
}

int64_t now_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

}  // namespace

Result<std::set<std::string>> scan_keys(RedisConnection& connection, const RedisKeys& keys,
                                        const std::string& part) {
    std::set<std::string> found;
    std::string cursor = "0";
    do {
        TRY(cursor, scan_round(connection, cursor, pattern(keys, part), found));
    } while (cursor != "0");
    std::erase_if(found,
                  [&](const std::string& key) { return !key.starts_with(keys.prefix + part); });
    return found;
}

std::optional<std::string> any_identity(RedisConnection& connection, const RedisKeys& keys) {
    std::set<std::string> found;
    std::string cursor = "0";
    for (int round = 0; round < kShortLook && found.empty(); ++round) {
        auto next = scan_round(connection, cursor, pattern(keys, "i:"), found);
        if (!next) return std::nullopt;
        cursor = *next;
        if (cursor == "0") break;
    }
    if (found.empty()) return std::nullopt;
    const std::string& key = *found.begin();
    std::optional<std::string> identity;
    connection.add({"GETRANGE", key, "0", kIdentityEnd});
    (void)connection.read(kSmallReply, [&](const RedisReply& reply) {
        const auto header = header_under(keys, key, reply.bytes());
        if (!header || header->kind != RecordKind::identity || !is_whole(*header, reply.bytes()))
            return;
        identity = reply.text.substr(static_cast<size_t>(header->head_size()),
                                     static_cast<size_t>(header->payload_size));
    });
    return identity;
}

std::optional<std::string> encode_record(RecordHeader header,
                                         const std::function<void(const Sink&)>& payload) {
    const auto head_size = static_cast<size_t>(header.head_size());
    if (header.total_size() > (uint64_t{512} << 20)) return std::nullopt;  // no value is larger
    std::string record;
    record.reserve(static_cast<size_t>(header.total_size()));
    record.resize(head_size);
    bool fits = true;
    payload([&](Bytes bytes) {
        fits = fits && record.size() - head_size + bytes.size() <= header.payload_size;
        if (fits) record.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    });
    if (!fits || record.size() - head_size != header.payload_size) return std::nullopt;
    header.data_checksum = hash64(
        {reinterpret_cast<const uint8_t*>(record.data()) + head_size, record.size() - head_size});
    const std::vector<uint8_t> head = encode_header(header);
    std::copy(head.begin(), head.end(), record.begin());
    record.resize(static_cast<size_t>(header.total_size()));
    return record;
}

Status RedisWriter::put(const RecordHeader& header, std::string_view record) {
    const std::string ttl = std::to_string(ttl_);
    const std::string key = keys_.key_of(header);
    if (ttl_ > 0)
        connection_.add({"SET", key, record, "EX", ttl});
    else
        connection_.add({"SET", key, record});
    expected_.push_back(RedisReply::Type::status);
    bytes_written_ += record.size();
    queued_bytes_ += record.size();
    if (header.kind == RecordKind::pages) {
        // Named after it is there, and named at least as long.
        const std::string set = keys_.children(header.parent);
        connection_.add({"ZADD", set, std::to_string(now_ms()), header.own.hex()});
        expected_.push_back(RedisReply::Type::integer);
        if (ttl_ > 0) connection_.add({"EXPIRE", set, ttl});
        if (ttl_ > 0) expected_.push_back(RedisReply::Type::integer);
    }
    if (queued_bytes_ >= kPortion) return flush();
    return {};
}

void RedisWriter::add_minor(std::initializer_list<std::string_view> words) {
    connection_.add(words);
    expected_.push_back(RedisReply::Type::nil);
}

Status RedisWriter::flush() {
    Status status;
    size_t i = 0;
    TRY(connection_.read(kSmallReply, [&](const RedisReply& reply) {
        const RedisReply::Type expected = expected_[i++];
        if (expected == RedisReply::Type::nil || reply.type == expected || !status) return;
        const std::string text =
            reply.is_error() ? printable(reply.text, 200) : "an unexpected answer";
        status = Error{ErrorKind::io, connection_.place() + ": " + text};
    }));
    expected_.clear();
    queued_bytes_ = 0;
    return status;
}

}  // namespace picolm::cache
