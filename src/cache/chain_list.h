// The records of a store as chains: what people call a saved prompt.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cache/store.h"

namespace picolm::cache {

struct Chain {
    std::string identity;
    std::vector<uint32_t> units;    // from the first one on
    std::vector<uint32_t> records;  // places in the list: identity, pages front to back, hidden
    Key128 own;                     // of its last record: its name
    uint64_t bytes = 0;             // of all its records
    uint64_t shared_bytes = 0;      // of those that other chains have too
    int64_t used_ns = 0;
    uint64_t n_uses = 0;  // of prompts that ended anywhere in it, where no other chain has it too
    bool has_hidden = false;  // behind its last position

    // The first eight digits of its name.
    std::string id() const { return own.hex().substr(0, 8); }
};

// One for each record that nothing continues; those that were used last come first. Records that
// hang on nothing, or whose identity is lost, are in none.
std::vector<Chain> list_chains(std::span<const RecordInfo> records);

// What only these chains have, so that removing it leaves all others whole.
std::set<RecordName> records_of(std::span<const RecordInfo> records, std::span<const Chain> all,
                                const std::set<size_t>& chosen);

}  // namespace picolm::cache
