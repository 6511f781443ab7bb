#include "cache/chains.h"

#include <algorithm>
#include <array>
#include <set>

namespace picolm::cache {

Chains::Chains(RecordIndex& index, const Query& query)
    : index_(index),
      units_(query.units.first(std::min<size_t>(query.units.size(), query.max_positions))),
      keys_(chain_keys(identity_key(query.identity), units_)),
      position_bytes_(query.position_bytes),
      hidden_bytes_(query.hidden_bytes) {}

// Records that begin at `first` behind `parent`.
std::vector<uint32_t> Chains::children(const Key128& parent, uint32_t first) const {
    std::span<const Key128> ahead;
    if (first < keys_.size() && keys_[first] == parent) ahead = std::span(keys_).subspan(first + 1);
    std::vector<uint32_t> ids = index_.pages_behind(parent, ahead);
    std::erase_if(ids, [&](uint32_t id) {
        const RecordHeader& h = index_.header(id);
        const bool size_fits = position_bytes_ == 0 || (h.payload_size / position_bytes_ == h.n &&
                                                        h.payload_size % position_bytes_ == 0);
        return h.identity != root() || h.first != first || !size_fits;
    });
    return ids;
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
    for (const uint32_t id : children(keys_[position], position)) {
        candidates.push_back({common_end(index_.header(id)), id});
    }
}

std::vector<Chains::Candidate>::iterator Chains::furthest(std::vector<Candidate>& candidates) {
    return std::max_element(candidates.begin(), candidates.end(),
                            [](const Candidate& a, const Candidate& b) {
                                return std::pair{a.reach, a.id} < std::pair{b.reach, b.id};
                            });
}

std::vector<Step> Chains::walk(uint32_t start, const Usable& usable) const {
    std::vector<Step> steps;
    uint32_t position = start;
    while (position < units_.size()) {
        const uint32_t page = position - position % kPage;
        std::vector<Candidate> candidates;
        std::array<bool, kPage> added{};  // positions of the page whose records are candidates
        const auto add = [&](uint32_t p) {
            if (!added[p - page]) add_candidates(p, candidates);
            added[p - page] = true;
        };
        do {
            if (index_.in_memory())
                for (uint32_t p = page; p < position; ++p) add(p);
            add(position);
            // The furthest first; among equals the newest, which may have replaced a damaged one.
            auto best = furthest(candidates);
            if (best == candidates.end() || best->reach <= position) {
                for (uint32_t p = page; p < position; ++p) add(p);
                best = furthest(candidates);
            }
            if (best == candidates.end() || best->reach <= position) return steps;
            if (!usable(best->id)) {
                candidates.erase(best);
                continue;
            }
            steps.push_back({best->id, position, best->reach - position});
            position = best->reach;
        } while (position < page + kPage && position < units_.size());
    }
    return steps;
}

uint32_t Chains::longest(uint32_t matched) const {
    uint32_t end = matched;
    std::vector<uint32_t> open;  // records that share the matched units and go on
    std::set<uint32_t> seen;
    const auto visit = [&](uint32_t id) {
        if (seen.insert(id).second) open.push_back(id);
    };
    std::vector<Candidate> candidates;
    for (uint32_t q = matched - matched % kPage; q <= matched; ++q) add_candidates(q, candidates);
    for (const Candidate& c : candidates) {
        if (c.reach >= matched && index_.header(c.id).end() > matched) visit(c.id);
    }
    while (!open.empty()) {
        const RecordHeader header = index_.header(open.back());  // the index may move it
        open.pop_back();
        end = std::max(end, header.end());
        Key128 key = header.parent;
        for (uint32_t i = 0; i < header.n; ++i) {
            key = next_key(key, header.units[i]);
            if (header.first + i + 1 <= matched) continue;
            if (!index_.in_memory() && i + 1 < header.n) continue;
            for (const uint32_t child : children(key, header.first + i + 1)) visit(child);
        }
    }
    return end;
}

std::optional<uint32_t> Chains::hidden(uint32_t position, const Usable& usable) const {
    const std::vector<uint32_t> found = index_.hidden_at(keys_[position]);
    for (size_t i = found.size(); i-- > 0;) {
        const RecordHeader& h = index_.header(found[i]);
        const bool ours = h.identity == root() && h.first == position &&
                          (hidden_bytes_ == 0 || h.payload_size == hidden_bytes_);
        if (ours && usable(found[i])) return found[i];
    }
    return std::nullopt;
}

}  // namespace picolm::cache
