// RedisStore's verbs for looking after a server: list, verify, remove, add.
#include <algorithm>
#include <charconv>
#include <map>

#include "base/format.h"
#include "cache/redis_scan.h"
#include "cache/redis_store.h"
#include "cache/retention.h"

namespace picolm::cache {
namespace {

constexpr size_t kPortion = 1000;               // headers in one round
constexpr uint64_t kLargestRecord = 512 << 20;  // no value of a server is larger
constexpr size_t kSmallReply = 64 << 10;

struct Found {
    std::string key;
    std::optional<RecordHeader> header;  // nullopt: damaged
    int64_t saved_ms = 0;                // 0: not known
};

// Every key of a record, with its header.
Result<std::vector<Found>> find_all(RedisConnection& connection, const RedisKeys& keys) {
    std::vector<Found> all;
    for (const char* part : {"i:", "r:"}) {
        TRY(const std::set<std::string> names, scan_keys(connection, keys, part));
        for (const std::string& name : names) all.push_back({name, {}, 0});
    }
    std::vector<bool> absent(all.size());
    for (size_t start = 0; start < all.size(); start += kPortion) {
        const size_t end = std::min(all.size(), start + kPortion);
        for (size_t i = start; i < end; ++i)
            connection.add({"GETRANGE", all[i].key, "0", std::to_string(kMaxHead - 1)});
        size_t i = start;
        TRY(connection.read(kSmallReply, [&](const RedisReply& reply) {
            absent[i] = reply.is_text() && reply.text.empty();
            all[i].header = header_under(keys, all[i].key, reply.bytes());
            ++i;
        }));
    }
    size_t place = 0;
    std::erase_if(all, [&](const Found&) { return absent[place++]; });
    return all;
}

Status add_times(RedisConnection& connection, const RedisKeys& keys, std::vector<Found>& all) {
    std::vector<Found*> pages;
    for (Found& found : all)
        if (found.header && found.header->kind == RecordKind::pages) pages.push_back(&found);
    for (size_t start = 0; start < pages.size(); start += kPortion) {
        const size_t end = std::min(pages.size(), start + kPortion);
        for (size_t i = start; i < end; ++i) {
            const RecordHeader& h = *pages[i]->header;
            connection.add({"ZSCORE", keys.children(h.parent), h.own.hex()});
        }
        size_t i = start;
        TRY(connection.read(kSmallReply, [&](const RedisReply& reply) {
            int64_t ms = 0;
            const std::string_view text = reply.is_text() ? reply.text : "";
            std::from_chars(text.data(), text.data() + text.size(), ms);
            if (ms > 0 && ms < INT64_MAX / 1000000) pages[i]->saved_ms = ms;
            ++i;
        }));
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Found& a, const Found& b) { return a.saved_ms < b.saved_ms; });
    return {};
}

// Calls `use` with the record; with nothing when it is not there or not whole.
Status get_record(RedisConnection& connection, const std::string& key, const RecordHeader& header,
                  const std::function<void(Bytes)>& use) {
    const uint64_t size = header.total_size();
    connection.add({"GETRANGE", key, "0", std::to_string(size)});
    return connection.read(static_cast<size_t>(std::min(size, kLargestRecord)) + kSmallReply,
                           [&](const RedisReply& reply) {
                               const bool good = reply.is_text() && is_whole(header, reply.bytes());
                               use(good ? reply.bytes() : Bytes());
                           });
}

Result<std::string> identity_text(RedisConnection& connection, const RedisKeys& keys,
                                  const Key128& key) {
    std::string text;
    connection.add({"GETRANGE", keys.identity(key), "0", kIdentityEnd});
    TRY(connection.read(kSmallReply, [&](const RedisReply& reply) {
        const auto header = header_under(keys, keys.identity(key), reply.bytes());
        if (reply.is_text() && header && is_whole(*header, reply.bytes()))
            text = reply.text.substr(static_cast<size_t>(header->head_size()),
                                     static_cast<size_t>(header->payload_size));
    }));
    return text;
}

// Removes what is damaged, those for which `stays` is false, and what hangs on them.
Status remove_others(RedisConnection& connection, const RedisKeys& keys,
                     const std::vector<Found>& all, const std::vector<bool>& stays,
                     uint32_t& n_removed) {
    std::vector<LogEntry> entries;  // one that is damaged does not stay
    for (const Found& found : all) entries.push_back({found.header.value_or(RecordHeader()), 0});
    const std::vector<bool> kept = reachable_without(entries, stays);
    for (size_t i = 0; i < all.size(); ++i) {
        if (kept[i]) continue;
        connection.add({"DEL", all[i].key});
        if (all[i].header && all[i].header->kind == RecordKind::pages)
            connection.add(
                {"ZREM", keys.children(all[i].header->parent), all[i].header->own.hex()});
        Status status;
        TRY(connection.read(kSmallReply, [&](const RedisReply& reply) {
            if (reply.is_error() && !reply.is_wrong_type())
                status =
                    Error{ErrorKind::io, connection.place() + ": " + printable(reply.text, 200)};
        }));
        TRY(std::move(status));
        ++n_removed;
    }
    return {};
}

}  // namespace

std::vector<RecordInfo> RedisStore::list() {
    std::vector<RecordInfo> list;
    auto opened = RedisConnection::open(address_);
    if (!opened) return list;
    const std::shared_ptr<RedisConnection> connection = std::move(*opened);
    auto all = find_all(*connection, keys_);
    if (!all || !add_times(*connection, keys_, *all)) return list;
    std::map<Key128, std::string> identities;
    for (const Found& found : *all) {
        if (!found.header) continue;
        const RecordHeader& h = *found.header;
        if (!identities.contains(h.identity)) {
            const auto text = identity_text(*connection, keys_, h.identity);
            identities[h.identity] = text ? *text : "";
        }
        RecordInfo info{h, identities[h.identity], found.saved_ms * 1000000, 0, {}};
        info.read = [connection, key = found.key, h](const Sink& sink) {
            bool good = false;
            const Status status = get_record(*connection, key, h, [&](Bytes record) {
                good = !record.empty();
                if (good)
                    sink(record.subspan(static_cast<size_t>(h.head_size()),
                                        static_cast<size_t>(h.payload_size)));
            });
            return status && good;
        };
        list.push_back(std::move(info));
    }
    return list;
}

Result<VerifyReport> RedisStore::verify(bool repair) {
    VerifyReport report;
    TRY(const auto connection, RedisConnection::open(address_));
    TRY(const std::vector<Found> all, find_all(*connection, keys_));
    std::vector<bool> stays(all.size());
    for (size_t i = 0; i < all.size(); ++i) {
        bool good = false;
        if (all[i].header)
            TRY(get_record(*connection, all[i].key, *all[i].header,
                           [&](Bytes record) { good = !record.empty(); }));
        stays[i] = good;
        if (good) {
            ++report.n_records;
            report.bytes += all[i].header->total_size();
        } else {
            report.damaged.push_back(printable(all[i].key, 300));
        }
    }
    report.n_damaged = static_cast<uint32_t>(report.damaged.size());
    if (repair) TRY(remove_others(*connection, keys_, all, stays, report.n_removed));
    return report;
}

Result<uint32_t> RedisStore::remove(const std::set<RecordName>& records) {
    TRY(const auto connection, RedisConnection::open(address_));
    TRY(const std::vector<Found> all, find_all(*connection, keys_));
    std::vector<bool> stays;
    for (const Found& found : all)
        stays.push_back(found.header &&
                        !records.contains({found.header->parent, found.header->own}));
    uint32_t n_removed = 0;
    TRY(remove_others(*connection, keys_, all, stays, n_removed));
    return n_removed;
}

Result<SaveReport> RedisStore::add(std::span<const RecordInfo> records) {
    SaveReport report;
    TRY(const auto connection, RedisConnection::open(address_));
    RedisWriter writer(*connection, keys_, address_.ttl_seconds);
    for (const RecordInfo& info : records) {
        const RecordHeader& h = info.header;
        bool there = false;
        TRY(writer.flush());
        TRY(get_record(*connection, keys_.key_of(h), h,
                       [&](Bytes record) { there = !record.empty(); }));
        if (there) continue;
        const auto record = encode_record(h, [&](const Sink& sink) { (void)info.read(sink); });
        if (!record ||
            !is_whole(h, {reinterpret_cast<const uint8_t*>(record->data()), record->size()}))
            return Error{ErrorKind::corrupt, "a record that was to be copied is damaged"};
        TRY(writer.put(h, *record));
        report.positions_new += h.n;
        report.outcome = SaveOutcome::appended;
    }
    TRY(writer.flush());
    report.bytes_written = writer.bytes_written();
    return report;
}

}  // namespace picolm::cache
