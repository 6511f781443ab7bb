#include "cache/redis_index.h"

#include <algorithm>
#include <utility>

#include "base/format.h"

namespace picolm::cache {
namespace {

constexpr size_t kPortion = 16 * kPage;  // positions, and records, asked for in one round
constexpr size_t kSmallReply = 64 << 10;

// The keys of the prompt that a record behind keys[p] may end at.
std::span<const Key128> ends_behind(std::span<const Key128> keys, size_t p) {
    const size_t page_end = p - p % kPage + kPage;
    const size_t end = std::min(keys.size(), page_end + 1);
    return p + 1 < end ? keys.subspan(p + 1, end - p - 1) : std::span<const Key128>();
}

bool contains(std::span<const Key128> keys, const Key128& key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
}

}  // namespace

Error RedisIndex::refused(const RedisReply& reply) const {
    const std::string text = reply.is_error() ? std::string(reply.text) : "an unexpected answer";
    return {ErrorKind::io, connection_.place() + ": " + printable(text, 200)};
}

void RedisIndex::take_identity(const Key128& key, const RedisReply& reply) {
    if (reply.is_text() && reply.text.empty()) return;
    const std::string name = names_.identity(key);
    const auto header = header_under(names_, name, reply.bytes());
    if (!reply.is_text() || !header || !is_whole(*header, reply.bytes())) {
        damaged_.push_back(name);
        return;
    }
    identity_ = reply.text.substr(static_cast<size_t>(header->head_size()),
                                  static_cast<size_t>(header->payload_size));
}

Status RedisIndex::read_lists(std::span<const Key128> parents, const Key128* identity_of,
                              Lists& lists) {
    if (identity_of)
        connection_.add({"GETRANGE", names_.identity(*identity_of), "0", kIdentityEnd});
    for (const Key128& parent : parents)
        connection_.add({"ZREVRANGE", names_.children(parent), "0", std::to_string(kSiblings - 1)});
    Status status;
    TRY(connection_.read(kSmallReply, [&](const RedisReply& reply) {
        if (reply.is_error() && !reply.is_wrong_type() && status) status = refused(reply);
        if (identity_of) {
            take_identity(*std::exchange(identity_of, nullptr), reply);
            return;
        }
        std::vector<Key128>& list = lists.emplace_back();
        if (reply.type != RedisReply::Type::array)
            wrong_sets_.push_back(names_.children(parents[lists.size() - 1]));
        for (const std::string_view item : reply.items) {
            const std::optional<Key128> own = parse_key(item);
            if (own && list.size() < kSiblings) list.push_back(*own);
        }
        std::reverse(list.begin(), list.end());  // oldest first
    }));
    return status;
}

void RedisIndex::take_header(const RecordName& record, const RedisReply& reply) {
    const auto& [parent, own] = record;
    if (reply.is_text() && reply.text.empty()) {
        if (parent != own) vanished_.push_back(record);
        return;
    }
    const std::string key = names_.record(parent, own);
    const auto header = header_under(names_, key, reply.bytes());
    if (!header) {
        damaged_.push_back(key);
        return;
    }
    headers_.push_back(*header);
    const auto id = static_cast<uint32_t>(headers_.size() - 1);
    if (header->kind == RecordKind::hidden)
        hidden_[own] = id;
    else
        pages_[parent].push_back(id);
}

Status RedisIndex::read_headers(const std::vector<RecordName>& records) {
    Status status;
    for (size_t start = 0; start < records.size(); start += kPortion) {
        const size_t end = std::min(records.size(), start + kPortion);
        for (size_t i = start; i < end; ++i)
            connection_.add({"GETRANGE", names_.record(records[i].first, records[i].second), "0",
                             std::to_string(kMaxHead - 1)});
        size_t i = start;
        TRY(connection_.read(kSmallReply, [&](const RedisReply& reply) {
            if (reply.is_error() && !reply.is_wrong_type() && status) status = refused(reply);
            take_header(records[i++], reply);
        }));
        TRY(std::move(status));
    }
    return {};
}

Status RedisIndex::read(std::span<const Key128> keys, uint32_t first, bool all) {
    const Key128* identity_of = &keys.front();
    for (size_t start = first / kPage * kPage; start < keys.size(); start += kPortion) {
        const auto parents = keys.subspan(start, std::min(kPortion, keys.size() - start));
        Lists lists;
        TRY(read_lists(parents, std::exchange(identity_of, nullptr), lists));
        // First what the prompt has as it is. A full list may not name it: it is asked for by name.
        std::vector<RecordName> exact, others;
        bool last_page_has_some = false;
        for (size_t i = 0; i < lists.size(); ++i) {
            pages_[parents[i]];
            const auto ends = ends_behind(keys, start + i);
            const bool full = lists[i].size() == kSiblings;
            if (full)
                for (const Key128& own : ends) exact.emplace_back(parents[i], own);
            for (const Key128& own : lists[i]) {
                const bool known = contains(ends, own);
                if (!known) others.emplace_back(parents[i], own);
                if (known && !full) exact.emplace_back(parents[i], own);
            }
            last_page_has_some |= !lists[i].empty() && i + kPage >= lists.size();
        }
        if (start + parents.size() == keys.size()) exact.emplace_back(keys.back(), keys.back());
        TRY(read_headers(exact));
        TRY(read_headers(others));
        if (!all && !last_page_has_some) break;
    }
    return {};
}

std::vector<uint32_t> RedisIndex::pages_behind(const Key128& parent, std::span<const Key128>) {
    const auto known = pages_.find(parent);
    if (known != pages_.end()) return known->second;
    std::vector<uint32_t>& ids = pages_[parent];
    Lists lists;
    if (n_lookups_ >= kLookups) return ids;
    ++n_lookups_;
    // Nothing that is used depends on these: a failure is no more than an end of the search.
    if (!read_lists({&parent, 1}, nullptr, lists)) {
        n_lookups_ = kLookups;
        return ids;
    }
    std::vector<RecordName> records;
    for (const Key128& own : lists.front()) records.emplace_back(parent, own);
    if (!read_headers(records)) n_lookups_ = kLookups;
    return ids;
}

std::vector<uint32_t> RedisIndex::hidden_at(const Key128& own) {
    const auto found = hidden_.find(own);
    if (found == hidden_.end()) return {};
    return {found->second};
}

}  // namespace picolm::cache
