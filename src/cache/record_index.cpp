#include "cache/record_index.h"

#include <algorithm>

namespace picolm::cache {
namespace {

std::vector<uint32_t> equal(const std::vector<std::pair<Key128, uint32_t>>& index,
                            const Key128& key) {
    const auto low = std::lower_bound(index.begin(), index.end(), std::pair{key, uint32_t{0}});
    std::vector<uint32_t> ids;
    for (auto it = low; it != index.end() && it->first == key; ++it) ids.push_back(it->second);
    return ids;
}

}  // namespace

LogIndex::LogIndex(std::span<const LogEntry> entries) : entries_(entries) {
    for (uint32_t i = 0; i < entries.size(); ++i) {
        const RecordHeader& h = entries[i].header;
        if (h.kind == RecordKind::pages) pages_.emplace_back(h.parent, i);
        if (h.kind == RecordKind::hidden) hidden_.emplace_back(h.own, i);
    }
    std::sort(pages_.begin(), pages_.end());
    std::sort(hidden_.begin(), hidden_.end());
}

std::vector<uint32_t> LogIndex::pages_behind(const Key128& parent, std::span<const Key128>) {
    return equal(pages_, parent);
}

std::vector<uint32_t> LogIndex::hidden_at(const Key128& own) {
    return equal(hidden_, own);
}

}  // namespace picolm::cache
