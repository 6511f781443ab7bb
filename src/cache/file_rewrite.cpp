#include "cache/file_rewrite.h"

#include <algorithm>
#include <cerrno>

namespace picolm::cache {
namespace {

// The same header and payload at another place; -EIO when it cannot be read or is damaged.
int copy_record(RecordWriter& writer, File& from, const LogEntry& entry) {
    const int error = writer.write(
        entry.header,
        [&](const RecordWriter::Sink& sink) { (void)read_payload(from, entry, sink); },
        entry.header.data_checksum);
    return error == -EILSEQ || error == -EINVAL ? -EIO : error;
}

std::string temporary_name(const std::string& path) {
    return path + ".picolm-rewriting";
}

}  // namespace

Status Rewrite::run(std::span<const uint32_t> others, const std::function<int(RecordWriter&)>& then,
                    SaveReport& report) const {
    const std::string temporary = temporary_name(path);
    std::unique_ptr<File> file;
    if (const int error = files.open(temporary, FileSystem::Mode::create, file)) {
        return file_error("create", temporary, error);
    }
    RecordWriter writer(*file, 0);
    int error = copy(writer, others, true);
    if (!error && then) error = then(writer);
    report.bytes_written = writer.bytes_written();
    Status status = error ? Status(file_error("write", temporary, error)) : Status();
    if (!error) status = put_in_place(*file, temporary, writer.end());
    if (!status) files.remove(temporary);
    report.outcome = error == -ECANCELED ? SaveOutcome::cancelled : SaveOutcome::rewritten;
    if (error == -ECANCELED) {
        report.positions_new = 0;
        report.positions_total = 0;
        return {};
    }
    return status;
}

// What hangs on a record that is left out becomes unreachable: safe, and saved again when it is
// next wanted.
int Rewrite::copy(RecordWriter& writer, std::span<const uint32_t> entries,
                  bool leave_out_damaged) const {
    for (const uint32_t i : entries) {
        const int error = copy_record(writer, *opened.file, opened.log.entries[i]);
        if (error && !(leave_out_damaged && error == -EIO)) return error;
    }
    return 0;
}

Status Rewrite::put_in_place(File& file, const std::string& temporary, uint64_t end) const {
    // A record that was left out may have left bytes behind the last one.
    int error = file.truncate(end);
    if (!error) error = file.sync();
    if (error) return file_error("write", temporary, error);
    if (!still_at(files, path, *opened.file)) {
        return Error{ErrorKind::busy, path + " was replaced meanwhile"};
    }
    error = files.rename(temporary, path);
    if (error) return file_error("replace", path, error);
    error = files.sync_folder_of(path);
    if (error) return file_error("write the folder of", path, error);
    return {};
}

// Anything else by that name is somebody else's and stays: a rewrite of ours begins with our magic,
// or with the gap where it will stand.
bool has_left_over(FileSystem& files, const std::string& path) {
    FileInfo info;
    const std::string name = temporary_name(path);
    if (files.info(name, info) != 0 || info.kind != FileKind::regular) return false;
    if (info.size == 0) return true;
    std::unique_ptr<File> file;
    uint8_t head[8] = {};
    if (files.open(name, FileSystem::Mode::read, file) != 0 || !file) return false;
    const int64_t got = read_fully(*file, head, sizeof head, 0);
    if (got < 0) return false;
    const HeadKind kind = classify_head(Bytes(head, static_cast<size_t>(got)));
    const bool gap = std::all_of(head, head + sizeof head, [](uint8_t b) { return b == 0; });
    return kind == HeadKind::ours || gap;
}

void remove_left_over(FileSystem& files, const std::string& path) {
    if (has_left_over(files, path)) files.remove(temporary_name(path));
}

}  // namespace picolm::cache
