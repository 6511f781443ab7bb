#include "cache/retention.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

namespace picolm::cache {
namespace {

struct KeyHash {
    size_t operator()(const Key128& key) const { return static_cast<size_t>(key.low); }
};

// Pages from the front to the back, longer before shorter and newer before older, so that what
// comes before a record is known and a repetition meets the record it repeats; hidden states last.
std::vector<uint32_t> front_to_back(std::span<const LogEntry> entries) {
    std::vector<uint32_t> order;
    for (uint32_t i = 0; i < entries.size(); ++i) {
        if (entries[i].header.kind != RecordKind::identity) order.push_back(i);
    }
    const auto rank = [&](uint32_t i) {
        const RecordHeader& h = entries[i].header;
        return std::tuple{h.kind, h.first, kPage - h.n, UINT32_MAX - i};
    };
    std::sort(order.begin(), order.end(),
              [&](uint32_t a, uint32_t b) { return rank(a) < rank(b); });
    return order;
}

std::map<Key128, uint32_t> newest_identities(std::span<const LogEntry> entries) {
    std::map<Key128, uint32_t> found;
    for (uint32_t i = 0; i < entries.size(); ++i) {
        if (entries[i].header.kind == RecordKind::identity) found[entries[i].header.identity] = i;
    }
    return found;
}

}  // namespace

Liveness find_live(std::span<const LogEntry> entries, std::optional<Key128> known) {
    Liveness live;
    live.before.assign(entries.size(), kDead);
    const std::map<Key128, uint32_t> identities = newest_identities(entries);
    std::unordered_map<Key128, uint32_t, KeyHash> holder;     // of the position before a key
    std::unordered_map<Key128, uint32_t, KeyHash> hidden_at;  // hidden states seen
    const auto revive = [&](uint32_t i, int64_t before) {
        live.before[i] = before;
        live.live_bytes += entries[i].header.total_size();
    };
    for (const uint32_t i : front_to_back(entries)) {
        const RecordHeader& h = entries[i].header;
        const auto identity = identities.find(h.identity);
        if (identity == identities.end() && h.identity != known) continue;
        const bool pages = h.kind == RecordKind::pages;
        if (pages ? holder.contains(h.own) : hidden_at.contains(h.own)) continue;
        int64_t before = kAtRoot;
        if (h.first > 0) {
            const auto found = holder.find(h.parent);
            if (found == holder.end()) continue;
            const RecordHeader& b = entries[found->second].header;
            if (b.identity != h.identity || b.first >= h.first || b.end() < h.first) continue;
            before = found->second;
        }
        revive(i, before);
        if (identity != identities.end() && live.before[identity->second] == kDead) {
            revive(identity->second, kAtRoot);
        }
        if (!pages) hidden_at.emplace(h.own, i);
        Key128 key = h.parent;
        for (uint32_t j = 0; j < h.n; ++j) {
            key = next_key(key, h.units[j]);
            holder.emplace(key, i);
        }
    }
    return live;
}

std::vector<bool> reachable_without(std::span<const LogEntry> entries,
                                    const std::vector<bool>& stay) {
    std::vector<LogEntry> left;
    std::vector<size_t> places;
    for (size_t i = 0; i < entries.size(); ++i) {
        if (!stay[i]) continue;
        left.push_back(entries[i]);
        places.push_back(i);
    }
    const Liveness live = find_live(left);
    std::vector<bool> reachable(entries.size());
    for (size_t i = 0; i < left.size(); ++i) reachable[places[i]] = live.before[i] != kDead;
    return reachable;
}

std::vector<uint32_t> choose_newest(std::span<const LogEntry> entries, const Liveness& live,
                                    std::span<const uint32_t> chosen, uint64_t bytes,
                                    uint64_t budget) {
    const std::map<Key128, uint32_t> identities = newest_identities(entries);
    std::vector<bool> kept(entries.size());
    for (const uint32_t i : chosen) kept[i] = true;
    std::vector<uint32_t> answer;
    for (uint32_t newest = static_cast<uint32_t>(entries.size()); newest-- > 0;) {
        if (kept[newest] || live.before[newest] == kDead) continue;
        if (entries[newest].header.kind == RecordKind::identity) continue;
        std::vector<uint32_t> chain;
        uint64_t cost = 0;
        const auto want = [&](uint32_t i) {
            if (kept[i]) return false;
            chain.push_back(i);
            cost += entries[i].header.total_size();
            return true;
        };
        const auto identity = identities.find(entries[newest].header.identity);
        if (identity != identities.end()) want(identity->second);
        for (int64_t i = newest; i >= 0 && cost <= budget && want(static_cast<uint32_t>(i));) {
            i = live.before[static_cast<size_t>(i)];
        }
        if (cost > budget || bytes > budget - cost) continue;
        bytes += cost;
        for (const uint32_t i : chain) kept[i] = true;
        answer.insert(answer.end(), chain.begin(), chain.end());
    }
    std::sort(answer.begin(), answer.end());
    return answer;
}

}  // namespace picolm::cache
