// FileStore's verbs for looking after a file: verify, remove, add.
#include <cerrno>

#include "base/format.h"
#include "cache/file_access.h"
#include "cache/file_rewrite.h"
#include "cache/file_store.h"
#include "cache/retention.h"

namespace picolm::cache {
namespace {

// Keeps those entries for which `keep` holds, without what hangs on the others.
Status keep_only(FileSystem& files, const std::string& path, OpenedLog& opened,
                 const std::function<bool(const LogEntry&)>& keep, uint32_t& n_removed) {
    std::vector<bool> stay;
    for (const LogEntry& entry : opened.log.entries) stay.push_back(keep(entry));
    const std::vector<bool> reachable = reachable_without(opened.log.entries, stay);
    std::vector<uint32_t> kept;
    for (uint32_t i = 0; i < reachable.size(); ++i)
        if (reachable[i]) kept.push_back(i);
    n_removed = static_cast<uint32_t>(opened.log.entries.size() - kept.size());
    if (n_removed == 0 && opened.log.damaged_bytes == 0 &&
        opened.log.file_size == opened.log.valid_end)
        return {};
    remove_left_over(files, path);
    SaveReport report;
    return Rewrite{files, path, opened}.run(kept, {}, report);
}

Error nothing_at(const std::string& path) {
    return {ErrorKind::io, "there is no KV cache at " + path};
}

}  // namespace

Result<VerifyReport> FileStore::verify(bool repair) {
    VerifyReport report;
    TRY(auto found, open_for_reading(files_, path_));
    if (!found) return nothing_at(path_);
    std::string why_not = why_not_ours(found->log, path_);
    if (!why_not.empty()) return Error{ErrorKind::invalid, why_not};
    const auto sound = [](OpenedLog& opened, const LogEntry& entry) {
        return payload_intact(*opened.file, entry);
    };
    const RecordLog& log = found->log;
    for (const LogEntry& entry : log.entries) {
        if (sound(*found, entry)) {
            ++report.n_records;
            report.bytes += entry.header.total_size();
            continue;
        }
        ++report.n_damaged;
        report.damaged.push_back(
            format("the record at byte %llu", static_cast<unsigned long long>(entry.offset)));
    }
    const uint64_t lost = log.damaged_bytes + (log.file_size - log.valid_end);
    if (lost > 0) {
        ++report.n_damaged;
        report.damaged.push_back(
            format("%llu bytes that are no record", static_cast<unsigned long long>(lost)));
    }
    if (!repair) return report;
    TRY(auto opened, open_locked(files_, path_, false, options_.lock_wait_ms));
    if (!opened) return nothing_at(path_);
    TRY(keep_only(
        files_, path_, *opened, [&](const LogEntry& entry) { return sound(*opened, entry); },
        report.n_removed));
    return report;
}

Result<uint32_t> FileStore::remove(const std::set<RecordName>& records) {
    uint32_t n_removed = 0;
    TRY(auto opened, open_locked(files_, path_, false, options_.lock_wait_ms));
    if (!opened) return nothing_at(path_);
    const std::string why_not = why_not_ours(opened->log, path_);
    if (!why_not.empty()) return Error{ErrorKind::invalid, why_not};
    TRY(keep_only(
        files_, path_, *opened,
        [&](const LogEntry& entry) {
            return !records.contains({entry.header.parent, entry.header.own});
        },
        n_removed));
    return n_removed;
}

Result<SaveReport> FileStore::add(std::span<const RecordInfo> records) {
    SaveReport report;
    TRY(auto opened, open_locked(files_, path_, true, options_.lock_wait_ms));
    RecordLog& log = opened->log;
    const std::string why_not = why_not_ours(log, path_);
    if (!why_not.empty()) return Error{ErrorKind::invalid, why_not + "; it is left alone"};
    if (log.file_size > log.valid_end) {
        if (const int error = opened->file->truncate(log.valid_end))
            return file_error("repair", path_, error);
    }
    std::set<RecordName> there;
    for (const LogEntry& entry : log.entries)
        if (payload_intact(*opened->file, entry))
            there.emplace(entry.header.parent, entry.header.own);
    RecordWriter writer(*opened->file, log.valid_end);
    for (const RecordInfo& record : records) {
        if (!there.emplace(record.header.parent, record.header.own).second) continue;
        const int error = writer.write(
            record.header, [&](const RecordWriter::Sink& sink) { (void)record.read(sink); },
            record.header.data_checksum);
        if (error) {
            opened->file->truncate(writer.end());
            if (error == -EINVAL || error == -EILSEQ)
                return Error{ErrorKind::corrupt, "a record that was to be copied is damaged"};
            return file_error("write", path_, error);
        }
        report.positions_new += record.header.n;
        report.outcome = SaveOutcome::appended;
    }
    report.bytes_written = writer.bytes_written();
    int error = opened->file->sync();
    if (!error && opened->created) error = files_.sync_folder_of(path_);
    if (error) return file_error("write", path_, error);
    return report;
}

}  // namespace picolm::cache
