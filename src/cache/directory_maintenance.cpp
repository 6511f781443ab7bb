// DirectoryStore's verbs for looking after a folder: verify, remove, add.
#include <algorithm>
#include <cerrno>

#include "base/format.h"
#include "cache/directory_store.h"
#include "cache/directory_sweep.h"
#include "cache/retention.h"

namespace picolm::cache {
namespace {

bool sound(const Directory& directory, const Record& record) {
    int error = 0;
    const auto opened =
        directory.open(record.file.path, record.file.parent, record.file.own, error);
    return opened && payload_intact(*opened->file, opened->entry);
}

// Removes those for which `stays` is false, and what hangs on them, ends of chains first.
Status remove_others(Directory& directory, const std::vector<Record>& records,
                     const std::vector<bool>& stays, uint32_t& n_removed) {
    std::vector<LogEntry> entries;
    for (const Record& record : records) entries.push_back({record.header, 0});
    const std::vector<bool> kept = reachable_without(entries, stays);
    std::vector<const Record*> order;
    for (size_t i = 0; i < records.size(); ++i)
        if (!kept[i]) order.push_back(&records[i]);
    std::stable_sort(order.begin(), order.end(), [](const Record* a, const Record* b) {
        return a->header.end() > b->header.end();
    });
    for (const Record* record : order) {
        if (const int error = directory.remove(record->file))
            return file_error("remove", record->file.path, error);
        ++n_removed;
    }
    return {};
}

}  // namespace

Result<VerifyReport> DirectoryStore::verify(bool repair) {
    VerifyReport report;
    Directory directory(path_, files_);
    TRY(directory.require());
    std::unique_ptr<File> lock;
    if (repair) {
        TRY(lock, lock_for_removing(directory, options_.lock_wait_ms));
    }
    TRY(const Contents contents, read_contents(directory));
    std::vector<bool> stays(contents.records.size());
    for (size_t i = 0; i < stays.size(); ++i) {
        const Record& record = contents.records[i];
        stays[i] = sound(directory, record);
        if (stays[i]) {
            ++report.n_records;
            report.bytes += record.file.size;
        } else if (FileInfo info; files_.info(record.file.path, info) == 0) {
            report.damaged.push_back(record.file.path);
        }
    }
    for (const ObjectFile& object : contents.damaged) report.damaged.push_back(object.path);
    report.n_damaged = static_cast<uint32_t>(report.damaged.size());
    if (!repair) return report;
    directory.remove_left_over(now_ns());
    for (const ObjectFile& object : contents.damaged) {
        if (const int error = directory.remove(object))
            return file_error("remove", object.path, error);
        ++report.n_removed;
    }
    TRY(remove_others(directory, contents.records, stays, report.n_removed));
    return report;
}

Result<uint32_t> DirectoryStore::remove(const std::set<RecordName>& records) {
    Directory directory(path_, files_);
    TRY(directory.require());
    TRY(const auto lock, lock_for_removing(directory, options_.lock_wait_ms));
    TRY(const Contents contents, read_contents(directory));
    std::vector<bool> stays;
    for (const Record& record : contents.records)
        stays.push_back(!records.contains({record.header.parent, record.header.own}));
    uint32_t n_removed = 0;
    TRY(remove_others(directory, contents.records, stays, n_removed));
    return n_removed;
}

Result<SaveReport> DirectoryStore::add(std::span<const RecordInfo> records) {
    SaveReport report;
    Directory directory(path_, files_);
    TRY(directory.create());
    for (const RecordInfo& record : records) {
        const RecordHeader& h = record.header;
        const std::string path = h.kind == RecordKind::identity
                                     ? directory.identity_path(h.own)
                                     : directory.object_path(h.parent, h.own);
        int error = 0;
        const auto there = directory.open(path, h.parent, h.own, error);
        if (there && payload_intact(*there->file, there->entry)) continue;
        error = directory.put(
            path,
            [&](RecordWriter& writer) {
                return writer.write(
                    h, [&](const RecordWriter::Sink& sink) { (void)record.read(sink); },
                    h.data_checksum);
            },
            report.bytes_written);
        if (error == -EINVAL || error == -EILSEQ)
            return Error{ErrorKind::corrupt, "a record that was to be copied is damaged"};
        if (error) return file_error("write", path, error);
        report.positions_new += h.n;
        report.outcome = SaveOutcome::appended;
    }
    if (const int error = directory.sync_names())
        return file_error("write the folders of", directory.path(), error);
    return report;
}

}  // namespace picolm::cache
