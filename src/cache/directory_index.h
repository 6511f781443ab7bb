// The records of a directory as a walk down a chain meets them: folders are read when they are
// asked for, and of a folder with very many records only what matters.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/directory.h"
#include "cache/record_index.h"

namespace picolm::cache {

class DirectoryIndex : public RecordIndex {
  public:
    // Of the records behind one key that are not in the prompt as they are, so many are looked at.
    static constexpr size_t kSiblings = 64;

    explicit DirectoryIndex(const Directory& directory) : directory_(directory) {}

    std::vector<uint32_t> pages_behind(const Key128& parent,
                                       std::span<const Key128> ahead) override;
    std::vector<uint32_t> hidden_at(const Key128& own) override;
    const RecordHeader& header(uint32_t id) const override { return headers_[id]; }
    bool in_memory() const override { return false; }

    std::string path(uint32_t id) const {
        return directory_.object_path(header(id).parent, header(id).own);
    }
    // Files that are no records, or not those that their names say.
    const std::vector<std::string>& damaged() const { return damaged_; }
    // Of a folder or file that could not be opened or read; 0: none.
    int error() const { return error_; }

  private:
    std::optional<uint32_t> read(const Key128& parent, const Key128& own);
    std::vector<Key128> choose(const Key128& parent, std::span<const Key128> ahead);

    const Directory& directory_;
    std::vector<RecordHeader> headers_;
    std::map<Key128, std::vector<uint32_t>> pages_;  // by parent, what was asked before
    std::vector<std::string> damaged_;
    int error_ = 0;
};

}  // namespace picolm::cache
