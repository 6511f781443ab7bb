#include "cache/chains.h"

#include <algorithm>

namespace picolm::cache {
namespace {

using Index = std::vector<std::pair<Key128, uint32_t>>;

std::span<const std::pair<Key128, uint32_t>> equal(const Index& index, const Key128& key) {
    const auto low = std::lower_bound(index.begin(), index.end(), std::pair{key, uint32_t{0}});
    const auto high = std::upper_bound(low, index.end(), std::pair{key, UINT32_MAX});
    return {low, high};
}

}  // namespace

Chains::Chains(std::span<const LogEntry> entries, const Query& query)
    : entries_(entries),
      units_(query.units.first(std::min<size_t>(query.units.size(), query.max_positions))),
      keys_(chain_keys(identity_key(query.identity), units_)) {
    for (uint32_t i = 0; i < entries.size(); ++i) {
        const RecordHeader& h = entries[i].header;
        if (h.identity != root()) continue;
        if (h.kind == RecordKind::pages &&
            (query.position_bytes == 0 || h.payload_size / query.position_bytes == h.n) &&
            (query.position_bytes == 0 || h.payload_size % query.position_bytes == 0)) {
            pages_.emplace_back(h.parent, i);
        }
        if (h.kind == RecordKind::hidden &&
            (query.hidden_bytes == 0 || h.payload_size == query.hidden_bytes)) {
            hidden_states_.emplace_back(h.own, i);
        }
    }
    std::sort(pages_.begin(), pages_.end());
    std::sort(hidden_states_.begin(), hidden_states_.end());
}

std::span<const std::pair<Key128, uint32_t>> Chains::children(const Key128& parent) const {
    return equal(pages_, parent);
}

// How far the units of a record agree with ours. REQUIRES: first <= units().size().
uint32_t Chains::common_end(const RecordHeader& header) const {
    uint32_t end = header.first;
    while (end < header.end() && end < units_.size() &&
           header.units[end - header.first] == units_[end]) {
        ++end;
    }
    return end;
}

void Chains::add_candidates(uint32_t position, std::vector<Candidate>& candidates) const {
    for (const auto& [parent, entry] : children(keys_[position])) {
        const RecordHeader& header = entries_[entry].header;
        if (header.first == position) candidates.push_back({common_end(header), entry});
    }
}

std::vector<Step> Chains::walk(uint32_t start, const Usable& usable) const {
    std::vector<Step> steps;
    uint32_t position = start;
    while (position < units_.size()) {
        std::vector<Candidate> candidates;
        uint32_t added = position - position % kPage;  // candidates begin before this position
        const uint32_t page_end_minus_1 = added + (kPage - 1);
        do {
            while (added <= position) add_candidates(added++, candidates);
            // The furthest first; among equals the newest, which may have replaced a damaged one.
            const auto best = std::max_element(
                candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
                    return std::pair{a.reach, a.entry} < std::pair{b.reach, b.entry};
                });
            if (best == candidates.end() || best->reach <= position) return steps;
            if (!usable(best->entry)) {
                candidates.erase(best);
                continue;
            }
            steps.push_back({best->entry, position, best->reach - position});
            position = best->reach;
        } while (position <= page_end_minus_1 && position < units_.size());
    }
    return steps;
}

uint32_t Chains::longest(uint32_t matched) const {
    uint32_t end = matched;
    std::vector<uint32_t> open;  // entries that share the matched units and go on
    std::vector<bool> seen(entries_.size());
    const auto visit = [&](uint32_t entry) {
        if (!seen[entry]) open.push_back(entry);
        seen[entry] = true;
    };
    std::vector<Candidate> candidates;
    for (uint32_t q = matched - matched % kPage; q <= matched; ++q) add_candidates(q, candidates);
    for (const Candidate& c : candidates) {
        if (c.reach >= matched && entries_[c.entry].header.end() > matched) visit(c.entry);
    }
    while (!open.empty()) {
        const RecordHeader& header = entries_[open.back()].header;
        open.pop_back();
        end = std::max(end, header.end());
        Key128 key = header.parent;
        for (uint32_t i = 0; i < header.n; ++i) {
            key = next_key(key, header.units[i]);
            if (header.first + i + 1 <= matched) continue;
            for (const auto& [parent, child] : children(key)) {
                if (entries_[child].header.first == header.first + i + 1) visit(child);
            }
        }
    }
    return end;
}

std::optional<uint32_t> Chains::hidden(uint32_t position, const Usable& usable) const {
    const auto found = equal(hidden_states_, keys_[position]);
    for (size_t i = found.size(); i-- > 0;) {
        const uint32_t entry = found[i].second;
        if (entries_[entry].header.first == position && usable(entry)) return entry;
    }
    return std::nullopt;
}

}  // namespace picolm::cache
