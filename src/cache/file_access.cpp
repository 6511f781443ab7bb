#include "cache/file_access.h"

#include <cerrno>
#include <chrono>
#include <thread>

#include "base/format.h"

namespace picolm::cache {
namespace {

using Clock = std::chrono::steady_clock;

const char* name_of(FileKind kind) {
    switch (kind) {
        case FileKind::directory:
            return "a directory";
        case FileKind::symlink:
            return "a symbolic link";
        default:
            return "a device or pipe";
    }
}

Error not_regular(const std::string& path, FileKind kind) {
    return {ErrorKind::invalid,
            format("%s is %s, not a regular file; it is left alone", path.c_str(), name_of(kind))};
}

// The file at the path, opened; `file` stays empty when nothing is there.
Status open_regular(FileSystem& files, const std::string& path, FileSystem::Mode mode,
                    std::unique_ptr<File>& file, FileInfo& info) {
    int error = files.info(path, info);
    if (error == -ENOENT) return {};
    if (error) return file_error("examine", path, error);
    if (info.kind != FileKind::regular) return not_regular(path, info.kind);
    error = files.open(path, mode, file);
    if (error == -ENOENT) return {};
    if (error) return file_error("open", path, error);
    // What was opened may not be what was examined.
    error = file->info(info);
    if (error) return file_error("examine", path, error);
    if (info.kind != FileKind::regular) return not_regular(path, info.kind);
    return {};
}

}  // namespace

Result<std::optional<OpenedLog>> open_for_reading(FileSystem& files, const std::string& path) {
    OpenedLog opened;
    TRY(open_regular(files, path, FileSystem::Mode::read, opened.file, opened.info));
    if (!opened.file) return std::optional<OpenedLog>();
    TRY(opened.log, scan_log(*opened.file, path));
    return std::optional(std::move(opened));
}

bool still_at(FileSystem& files, const std::string& path, File& file) {
    FileInfo named;
    FileInfo held;
    return files.info(path, named) == 0 && file.info(held) == 0 && named.inode == held.inode &&
           named.device == held.device && named.kind == FileKind::regular;
}

Result<std::optional<OpenedLog>> open_locked(FileSystem& files, const std::string& path,
                                             bool create, uint32_t wait_ms) {
    const auto deadline = Clock::now() + std::chrono::milliseconds(wait_ms);
    for (;;) {
        OpenedLog opened;
        TRY(open_regular(files, path, FileSystem::Mode::read_write, opened.file, opened.info));
        if (!opened.file && !create) return std::optional<OpenedLog>();
        int error = 0;
        if (!opened.file) {
            error = files.open(path, FileSystem::Mode::create, opened.file);
            opened.created = error == 0;
            // Somebody else was faster: then that file is the one.
            if (error && error != -EEXIST) return file_error("create", path, error);
        }
        if (opened.file) error = opened.file->try_lock();
        // A rewrite or a failed first save may have taken this file off the path before we had the
        // lock; what we would add to it nobody would see.
        if (!error && still_at(files, path, *opened.file)) {
            TRY(opened.log, scan_log(*opened.file, path));
            return std::optional(std::move(opened));
        }
        if (error && error != -EEXIST && error != -EWOULDBLOCK) {
            return file_error("lock", path, error);
        }
        if (Clock::now() >= deadline) {
            return Error{ErrorKind::busy,
                         format("%s is being written by another process", path.c_str())};
        }
        if (error == -EWOULDBLOCK) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}

std::string why_not_ours(const RecordLog& log, const std::string& path) {
    switch (log.head) {
        case HeadKind::ours:
            break;
        case HeadKind::newer:
            return format("%s is a KV cache of another version of this program (format %u)",
                          path.c_str(), log.second_word & 0x7FFFFFFF);
        case HeadKind::original:
            return format(
                "%s is a KV cache of the original PicoLM (%u positions): it does not say "
                "which prompt it belongs to",
                path.c_str(), log.second_word);
        case HeadKind::foreign:
            return path + " is not a KV cache";
    }
    return "";
}

}  // namespace picolm::cache
