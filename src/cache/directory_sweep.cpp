#include "cache/directory_sweep.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <set>
#include <thread>

#include "base/format.h"
#include "cache/retention.h"

namespace picolm::cache {
namespace {

constexpr uint64_t kMostByDefault = uint64_t{1} << 30;

}  // namespace

int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

uint64_t total_bytes(const std::vector<ObjectFile>& objects) {
    uint64_t bytes = 0;
    for (const ObjectFile& object : objects) bytes += object.size;
    return bytes;
}

uint64_t default_limit(const Directory& directory, uint64_t own_bytes) {
    uint64_t free = 0;
    if (directory.files().free_space(directory.path(), free) != 0) return kMostByDefault;
    return std::min(kMostByDefault, (free + own_bytes) / 10);
}

int compact_usage(const Directory& directory, const std::map<Key128, Usage>& usage) {
    return write_usage(directory.files(), directory.usage_path(), directory.path() + "/tmp/usage",
                       usage);
}

Result<Contents> read_contents(const Directory& directory) {
    TRY(const std::vector<ObjectFile> objects, directory.list_all());
    const std::map<Key128, Usage> usage = read_usage(directory.files(), directory.usage_path());
    Contents contents;
    for (const ObjectFile& object : objects) {
        int error = 0;
        const auto opened = directory.open(object.path, object.parent, object.own, error);
        if (error == Directory::kDamaged)
            contents.damaged.push_back(object);
        else if (error && error != -ENOENT)
            return file_error("open", object.path, error);
        if (!opened) continue;
        Record record{opened->entry.header, object, object.modified_ns, 0};
        // The key of a use is also that of the hidden state behind it, which is as old then.
        const auto used = usage.find(object.own);
        if (used != usage.end()) {
            record.used_ns = std::max(record.used_ns, used->second.last_ns);
            if (record.header.kind == RecordKind::pages) record.n_uses = used->second.n;
        }
        contents.records.push_back(std::move(record));
    }
    std::stable_sort(contents.records.begin(), contents.records.end(),
                     [](const Record& a, const Record& b) { return a.used_ns < b.used_ns; });
    return contents;
}

Result<std::unique_ptr<File>> lock_for_removing(const Directory& directory, uint32_t wait_ms) {
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + std::chrono::milliseconds(wait_ms);
    const std::string path = directory.lock_path();
    std::unique_ptr<File> file;
    int error = directory.files().open(path, FileSystem::Mode::append, file);
    if (error) return file_error("open", path, error);
    for (;;) {
        error = file->try_lock();
        if (!error) return file;
        if (error != -EWOULDBLOCK) return file_error("lock", path, error);
        if (Clock::now() >= deadline)
            return Error{ErrorKind::busy, "another process is making room in " + directory.path()};
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}

Status make_room(Directory& directory, const std::vector<std::pair<Key128, Key128>>& kept,
                 uint64_t bytes, uint64_t budget, SaveReport& report) {
    TRY(const Contents contents, read_contents(directory));
    const std::set<std::pair<Key128, Key128>> keep(kept.begin(), kept.end());
    std::vector<LogEntry> entries;
    std::vector<uint32_t> chosen;
    for (const Record& record : contents.records) {
        if (keep.contains({record.header.parent, record.header.own}))
            chosen.push_back(static_cast<uint32_t>(entries.size()));
        entries.push_back({record.header, 0});
    }
    std::optional<Key128> known;  // its records stay even if its identity cannot be read
    if (!kept.empty()) known = kept.front().first;
    const Liveness live = find_live(entries, known);
    std::vector<bool> stays(entries.size());
    for (const uint32_t i : chosen) stays[i] = true;
    for (const uint32_t i : choose_newest(entries, live, chosen, bytes, budget)) stays[i] = true;

    int first_error = 0;
    const auto remove = [&](const ObjectFile& object) {
        const int error = directory.remove(object);
        if (!error) ++report.n_evicted;
        if (error && !first_error) first_error = error;
    };
    std::map<Key128, Usage> usage;
    std::vector<uint32_t> order;
    for (uint32_t i = 0; i < entries.size(); ++i) {
        const Record& record = contents.records[i];
        if (!stays[i]) order.push_back(i);
        if (stays[i] && record.n_uses > 0)
            usage[record.header.own] = {record.used_ns, record.n_uses};
    }
    // Ends of chains before their beginnings: what is left is reachable at any moment.
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
        return entries[a].header.end() > entries[b].header.end();
    });
    for (const uint32_t i : order) remove(contents.records[i].file);
    for (const ObjectFile& object : contents.damaged)
        if (!keep.contains({object.parent, object.own})) remove(object);
    (void)compact_usage(directory, usage);
    if (first_error) return file_error("remove from", directory.path(), first_error);
    return {};
}

}  // namespace picolm::cache
