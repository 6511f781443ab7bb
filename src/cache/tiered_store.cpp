#include "cache/tiered_store.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace picolm::cache {
namespace {

void append_notes(std::vector<Note>& to, std::vector<Note> from) {
    std::move(from.begin(), from.end(), std::back_inserter(to));
}

// Continues a match with what another store has behind it.
void join(Match& match, Match rest) {
    match.saved_positions = std::max(match.saved_positions, rest.saved_positions);
    match.bytes_read += rest.bytes_read;
    match.n_damaged += rest.n_damaged;
    append_notes(match.notes, std::move(rest.notes));
    if (rest.matched <= match.matched) return;
    match.matched = rest.matched;
    match.segments.insert(match.segments.end(), rest.segments.begin(), rest.segments.end());
    match.hidden = rest.hidden;
    match.incomplete = true;
    using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
    match.hold = std::make_shared<Both>(std::move(match.hold), std::move(rest.hold));
}

SaveReport sum(SaveReport a, SaveReport b) {
    if (a.outcome == SaveOutcome::nothing_new) a.outcome = b.outcome;
    a.positions_new = std::max(a.positions_new, b.positions_new);
    a.positions_total = std::max(a.positions_total, b.positions_total);
    a.bytes_written += b.bytes_written;
    a.n_evicted += b.n_evicted;
    append_notes(a.notes, std::move(b.notes));
    return a;
}

}  // namespace

Match TieredStore::match(const Query& query, Match (Store::*verb)(const Query&)) {
    Match match = (near_.get()->*verb)(query);
    near_matched_ = match.matched;
    const size_t wanted = std::min<size_t>(query.units.size(), query.max_positions);
    if (match.matched >= wanted) return match;
    Query rest = query;
    rest.first = std::max(query.first, match.matched);
    join(match, (far_.get()->*verb)(rest));
    return match;
}

Result<SaveReport> TieredStore::save(const SaveRequest& request) {
    SaveRequest to_near = request;
    to_near.verified = std::min(request.verified, near_matched_);
    Result<SaveReport> near = near_->save(to_near);
    Result<SaveReport> far = far_->save(request);
    if (near && far) return sum(std::move(*near), std::move(*far));
    Result<SaveReport>&failed = near ? far : near, &saved = near ? near : far;
    if (saved) saved->notes.push_back({LogLevel::warning, failed.error().text});
    return std::move(saved);
}

}  // namespace picolm::cache
