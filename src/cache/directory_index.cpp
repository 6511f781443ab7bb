#include "cache/directory_index.h"

#include <algorithm>
#include <cerrno>

namespace picolm::cache {

std::optional<uint32_t> DirectoryIndex::read(const Key128& parent, const Key128& own) {
    const std::string path = directory_.object_path(parent, own);
    int error = 0;
    const auto opened = directory_.open(path, parent, own, error);
    if (error == Directory::kDamaged)
        damaged_.push_back(path);
    else if (error && error != -ENOENT)
        error_ = error;
    if (!opened) return std::nullopt;
    headers_.push_back(opened->entry.header);
    return static_cast<uint32_t>(headers_.size() - 1);
}

// Own keys of the records behind `parent` that are worth opening, oldest first: those that the
// prompt has as they are, and the newest others.
std::vector<Key128> DirectoryIndex::choose(const Key128& parent, std::span<const Key128> ahead) {
    std::vector<Key128> all;
    const int error = directory_.list(parent, all);
    if (error && error != -ENOENT && error != -ENOTDIR) error_ = error;
    std::erase(all, parent);  // the hidden state
    if (ahead.size() > kPage) ahead = ahead.first(kPage);
    const auto exact = std::stable_partition(all.begin(), all.end(), [&](const Key128& own) {
        return std::find(ahead.begin(), ahead.end(), own) == ahead.end();
    });
    std::vector<std::pair<int64_t, Key128>> others;
    for (auto it = all.begin(); it != exact; ++it) others.emplace_back(0, *it);
    if (others.size() > kSiblings) {
        for (auto& [time, own] : others) {
            FileInfo info;
            if (directory_.files().info(directory_.object_path(parent, own), info) == 0)
                time = info.modified_ns;
        }
        std::sort(others.begin(), others.end());
        others.erase(others.begin(), others.end() - kSiblings);
    }
    std::vector<Key128> chosen;
    for (const auto& [time, own] : others) chosen.push_back(own);
    chosen.insert(chosen.end(), exact, all.end());
    return chosen;
}

std::vector<uint32_t> DirectoryIndex::pages_behind(const Key128& parent,
                                                   std::span<const Key128> ahead) {
    const auto known = pages_.find(parent);
    if (known != pages_.end()) return known->second;
    std::vector<uint32_t> ids;
    for (const Key128& own : choose(parent, ahead)) {
        const std::optional<uint32_t> id = read(parent, own);
        if (id && header(*id).kind == RecordKind::pages) ids.push_back(*id);
    }
    return pages_[parent] = std::move(ids);
}

std::vector<uint32_t> DirectoryIndex::hidden_at(const Key128& own) {
    const std::optional<uint32_t> id = read(own, own);
    if (!id || header(*id).kind != RecordKind::hidden) return {};
    return {*id};
}

}  // namespace picolm::cache
