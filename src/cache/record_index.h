// Where records are found by the key they hang on: what a walk down a chain needs of a store.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cache/record_log.h"

namespace picolm::cache {

class RecordIndex {
  public:
    virtual ~RecordIndex() = default;

    // Ids of the records of kind `pages` whose parent is `parent`, and of kind `hidden` whose own
    // key is `own`; oldest first. `ahead`: the keys that follow `parent` in the prompt, by which an
    // index that does not want to look at everything finds what matters most.
    virtual std::vector<uint32_t> pages_behind(const Key128& parent,
                                               std::span<const Key128> ahead) = 0;
    virtual std::vector<uint32_t> hidden_at(const Key128& own) = 0;
    virtual const RecordHeader& header(uint32_t id) const = 0;

    // Whether asking costs no reading, so that it may be done for every position of a record.
    virtual bool in_memory() const = 0;
};

// The entries of one file; an id is a place among them.
class LogIndex : public RecordIndex {
  public:
    explicit LogIndex(std::span<const LogEntry> entries);  // which must outlive this

    std::vector<uint32_t> pages_behind(const Key128& parent, std::span<const Key128>) override;
    std::vector<uint32_t> hidden_at(const Key128& own) override;
    const RecordHeader& header(uint32_t id) const override { return entries_[id].header; }
    bool in_memory() const override { return true; }

  private:
    std::span<const LogEntry> entries_;
    std::vector<std::pair<Key128, uint32_t>> pages_;   // (parent, entry), sorted
    std::vector<std::pair<Key128, uint32_t>> hidden_;  // (own, entry), sorted
};

}  // namespace picolm::cache
