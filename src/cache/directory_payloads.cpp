#include "cache/directory_payloads.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <system_error>
#include <thread>

#include "base/format.h"

namespace picolm::cache {
namespace {

constexpr uint64_t kWorthAThread = 4 << 20;  // bytes: about a millisecond

// Calls work(i) for i < n, in any order, from up to n_threads threads.
template <typename Work>
void in_parallel(size_t n, size_t n_threads, Work work) {
    std::atomic<size_t> next = 0;
    const auto take = [&] {
        for (size_t i; (i = next.fetch_add(1)) < n;) work(i);
    };
    std::vector<std::thread> threads;
    try {
        while (threads.size() + 1 < n_threads) threads.emplace_back(take);
    } catch (const std::system_error&) {
        // Those that there are will do.
    }
    take();
    for (std::thread& thread : threads) thread.join();
}

}  // namespace

DirectoryPayloads::Read DirectoryPayloads::read(uint32_t id) const {
    const RecordHeader& h = index_.header(id);
    Read result;
    const auto opened = directory_.open(index_.path(id), h.parent, h.own, result.error);
    if (!opened) return result;
    // Read, not touched through the mapping: a bad sector is then a miss and no SIGBUS.
    result.bytes_read = h.payload_size;
    if (!payload_intact(*opened->file, opened->entry)) {
        result.error = Directory::kDamaged;
        return result;
    }
    const uint64_t size = h.total_size();
    result.error =
        size > SIZE_MAX ? -EFBIG : opened->file->map(static_cast<size_t>(size), result.mapping);
    if (!result.error)
        result.payload = {result.mapping.get() + h.head_size(),
                          static_cast<size_t>(h.payload_size)};
    return result;
}

void DirectoryPayloads::report(uint32_t id, const Read& read) {
    match_.bytes_read += read.bytes_read;
    // -ENOENT: somebody has just removed it.
    if (read.error == 0 || read.error == -ENOENT) return;
    const RecordHeader& h = index_.header(id);
    const std::string path = index_.path(id);
    std::string text;
    if (read.error != Directory::kDamaged)
        text = "a saved record is not used: " + file_error("map", path, read.error).text;
    else if (h.n == 0)
        text = path + " is damaged: a saved hidden state is not used";
    else
        text = format("%s is damaged: saved positions %u to %u are not used", path.c_str(), h.first,
                      h.end() - 1);
    match_.n_damaged += read.error == Directory::kDamaged;
    match_.notes.push_back({LogLevel::warning, std::move(text)});
}

bool DirectoryPayloads::verify(std::span<const uint32_t> ids) {
    std::vector<uint32_t> unread;
    uint64_t bytes = 0;
    for (const uint32_t id : ids) {
        if (read_.contains(id) || std::find(unread.begin(), unread.end(), id) != unread.end())
            continue;
        unread.push_back(id);
        bytes += index_.header(id).payload_size;
    }
    std::vector<Read> results(unread.size());
    const auto n_threads =
        static_cast<size_t>(std::min<uint64_t>(n_threads_, 1 + bytes / kWorthAThread));
    in_parallel(unread.size(), n_threads, [&](size_t i) { results[i] = read(unread[i]); });
    for (size_t i = 0; i < unread.size(); ++i) {
        report(unread[i], results[i]);
        read_[unread[i]] = std::move(results[i]);
    }
    return std::none_of(ids.begin(), ids.end(), [&](uint32_t id) { return failed(id); });
}

bool DirectoryPayloads::failed(uint32_t id) const {
    const auto found = read_.find(id);
    return found != read_.end() && found->second.error != 0;
}

std::shared_ptr<const void> DirectoryPayloads::hold() const {
    auto all = std::make_shared<std::vector<std::shared_ptr<const uint8_t>>>();
    for (const auto& [id, read] : read_)
        if (read.mapping) all->push_back(read.mapping);
    return all;
}

}  // namespace picolm::cache
