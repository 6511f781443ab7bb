// The way from a walk to a match, for stores whose payloads are fetched record by record.
#pragma once

#include <vector>

#include "cache/chains.h"
#include "cache/store.h"

namespace picolm::cache {

// Fills matched, segments, hidden and hold. Payloads has, as DirectoryPayloads, verify(ids),
// failed(id), payload(id) and hold(). The steps that were taken.
template <typename Payloads>
std::vector<Step> match_verified(const Chains& chains, const Query& query, bool with_payload,
                                 Payloads& payloads, Match& match) {
    // The best way through what has not failed yet, until nothing on it fails.
    std::vector<Step> steps;
    std::vector<uint32_t> ids;
    do {
        steps = chains.walk(query.first, [&](uint32_t id) { return !payloads.failed(id); });
        ids.clear();
        for (const Step& step : steps) ids.push_back(step.id);
    } while (with_payload && !payloads.verify(ids));

    for (const Step& step : steps) {
        const RecordHeader& h = chains.header(step.id);
        match.segments.push_back({h.first, h.n, step.from, step.used,
                                  with_payload ? payloads.payload(step.id) : Bytes()});
        match.matched = step.from + step.used;
    }
    if (with_payload && match.matched == query.units.size()) {
        const auto hidden = chains.hidden(match.matched, [&](uint32_t id) {
            return payloads.verify({&id, 1});
        });
        if (hidden) match.hidden = payloads.payload(*hidden);
    }
    match.hold = payloads.hold();
    return steps;
}

}  // namespace picolm::cache
