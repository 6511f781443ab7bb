// The records of one identity as a tree of prefixes: which of them a prompt can use, and how far
// the saved text went on. Owns no bytes and no files.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "cache/record_index.h"
#include "cache/store.h"

namespace picolm::cache {

// Positions [from, from + used) come from the record `id`.
struct Step {
    uint32_t id = 0;
    uint32_t from = 0;
    uint32_t used = 0;
};

class Chains {
  public:
    // Whether a record may be used; asked once for each record a walk wants to use.
    using Usable = std::function<bool(uint32_t id)>;

    // `index` must outlive this. Records of another identity, and those whose payload size
    // contradicts the query, are left out. The units that count are the first
    // min(n, max_positions) of the query.
    Chains(RecordIndex& index, const Query& query);

    std::span<const uint32_t> units() const { return units_; }
    const Key128& root() const { return keys_.front(); }
    std::span<const Key128> keys() const { return keys_; }                  // K_0 .. K_n
    const Key128& key(uint32_t position) const { return keys_[position]; }  // K_position
    const RecordHeader& header(uint32_t id) const { return index_.header(id); }

    // The steps from `start` on as far as records reach. Positions before `start` count as present:
    // a record of the same page may begin there. Each step uses the record that reaches furthest of
    // those that were looked at; the order does not change the end, because whatever can be used
    // at one position of a page can be used at any later one.
    std::vector<Step> walk(uint32_t start, const Usable& usable) const;

    // End of the longest chain that shares the first `matched` units. Where the index has to read
    // for it, branches that leave a record in its middle are not followed.
    uint32_t longest(uint32_t matched) const;

    // The newest usable hidden record behind `position` units.
    std::optional<uint32_t> hidden(uint32_t position, const Usable& usable) const;

  private:
    struct Candidate {
        uint32_t reach;
        uint32_t id;
    };
    static std::vector<Candidate>::iterator furthest(std::vector<Candidate>& candidates);
    uint32_t common_end(const RecordHeader& header) const;
    std::vector<uint32_t> children(const Key128& parent, uint32_t first) const;
    void add_candidates(uint32_t position, std::vector<Candidate>& candidates) const;

    RecordIndex& index_;
    std::span<const uint32_t> units_;
    std::vector<Key128> keys_;  // [units + 1]
    uint64_t position_bytes_;
    uint64_t hidden_bytes_;
};

}  // namespace picolm::cache
