#include "cache/chain_list.h"

#include <algorithm>
#include <map>

#include "cache/retention.h"

namespace picolm::cache {
namespace {

RecordName name_of(const RecordInfo& record) {
    return {record.header.parent, record.header.own};
}

}  // namespace

std::vector<Chain> list_chains(std::span<const RecordInfo> records) {
    std::vector<LogEntry> entries;
    for (const RecordInfo& record : records) entries.push_back({record.header, 0});
    const Liveness live = find_live(entries);
    std::set<Key128> continued;  // keys that pages hang on
    std::map<Key128, uint32_t> identities, hidden;
    for (uint32_t i = 0; i < records.size(); ++i) {
        const RecordHeader& h = records[i].header;
        if (live.before[i] == kDead) continue;
        if (h.kind == RecordKind::identity) identities[h.identity] = i;
        if (h.kind == RecordKind::hidden) hidden[h.own] = i;
        if (h.kind == RecordKind::pages) continued.insert(h.parent);
    }
    std::vector<Chain> chains;
    std::vector<uint32_t> n_chains(records.size());
    for (uint32_t last = 0; last < records.size(); ++last) {
        const RecordHeader& h = records[last].header;
        if (h.kind != RecordKind::pages || live.before[last] == kDead ||
            continued.contains(h.own) || records[last].identity.empty())
            continue;
        Chain chain;
        chain.identity = records[last].identity;
        chain.own = h.own;
        std::vector<uint32_t> pages;
        for (int64_t i = last; i >= 0; i = live.before[static_cast<size_t>(i)])
            pages.push_back(static_cast<uint32_t>(i));
        chain.records.push_back(identities[h.identity]);
        chain.records.insert(chain.records.end(), pages.rbegin(), pages.rend());
        for (const uint32_t i : chain.records) {
            const RecordHeader& each = records[i].header;
            if (each.kind != RecordKind::pages) continue;
            // A record that branches off earlier takes over from there.
            chain.units.resize(each.first);
            chain.units.insert(chain.units.end(), each.units.begin(), each.units.begin() + each.n);
        }
        Key128 key = identity_key(chain.identity);
        for (const uint32_t unit : chain.units) {
            key = next_key(key, unit);
            const auto found = hidden.find(key);
            if (found == hidden.end()) continue;
            chain.records.push_back(found->second);
            chain.has_hidden = key == chain.own;
        }
        for (const uint32_t i : chain.records) ++n_chains[i];
        chains.push_back(std::move(chain));
    }
    for (Chain& chain : chains) {
        for (const uint32_t i : chain.records) {
            chain.bytes += records[i].bytes();
            chain.used_ns = std::max(chain.used_ns, records[i].used_ns);
            if (n_chains[i] > 1)
                chain.shared_bytes += records[i].bytes();
            else
                chain.n_uses += records[i].n_uses;
        }
    }
    std::stable_sort(chains.begin(), chains.end(),
                     [](const Chain& a, const Chain& b) { return a.used_ns > b.used_ns; });
    return chains;
}

std::set<RecordName> records_of(std::span<const RecordInfo> records, std::span<const Chain> all,
                                const std::set<size_t>& chosen) {
    std::set<RecordName> names;
    for (const size_t c : chosen)
        for (const uint32_t i : all[c].records) names.insert(name_of(records[i]));
    for (size_t c = 0; c < all.size(); ++c) {
        if (chosen.contains(c)) continue;
        for (const uint32_t i : all[c].records) names.erase(name_of(records[i]));
    }
    return names;
}

}  // namespace picolm::cache
