// The seam between what must be safe on disk and the operating system: every call of src/cache that
// can fail goes through here, so that a test can fail each of them once. Results are those of the
// kernel: a count or 0, or a negative errno value; EINTR is never seen by the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"

namespace picolm {

enum class FileKind { regular, directory, symlink, other };

struct FileInfo {
    FileKind kind = FileKind::other;
    uint64_t size = 0;
    uint64_t device = 0;  // device and inode together name a file whatever path it has
    uint64_t inode = 0;
    int64_t modified_ns = 0;  // since 1970
};

// An open file; closed, and its lock released, by the destructor. Not for use by two threads.
class File {
  public:
    virtual ~File() = default;
    // Up to n bytes at an offset; 0 at the end of the file. May be short.
    virtual int64_t read_at(void* out, size_t n, uint64_t offset) = 0;
    virtual int64_t write_at(const void* data, size_t n, uint64_t offset) = 0;
    virtual int truncate(uint64_t size) = 0;
    // Contents and size reach the medium before this returns.
    virtual int sync() = 0;
    // An exclusive advisory lock that two opens of one file in one process respect as well.
    // -EWOULDBLOCK when somebody else has it.
    virtual int try_lock() = 0;
    virtual int info(FileInfo& out) = 0;
    // The first `size` bytes, read-only, shared with the page cache; they outlive the File.
    // REQUIRES: 0 < size <= the size of the file.
    virtual int map(size_t size, std::shared_ptr<const uint8_t>& out) = 0;
};

class FileSystem {
  public:
    enum class Mode {
        read,        // an existing file
        read_write,  // an existing file
        create,      // a new file for reading and writing, mode 0600; -EEXIST if anything is there
        append,      // the same, or an existing file; whatever is written goes to the end
    };
    virtual ~FileSystem() = default;
    // Symlinks are not followed (-ELOOP); a pipe or device never blocks the call.
    virtual int open(const std::string& path, Mode mode, std::unique_ptr<File>& out) = 0;
    virtual int info(const std::string& path, FileInfo& out) = 0;  // of a symlink itself
    virtual int rename(const std::string& from, const std::string& to) = 0;
    virtual int remove(const std::string& path) = 0;
    // Makes created, renamed and removed names in the folder of `path` durable.
    virtual int sync_folder_of(const std::string& path) = 0;

    virtual int make_folder(const std::string& path) = 0;    // mode 0700
    virtual int remove_folder(const std::string& path) = 0;  // -ENOTEMPTY if it is not empty
    // The names in a folder, without "." and "..", in no order.
    virtual int list_folder(const std::string& path, std::vector<std::string>& names) = 0;
    // Bytes that may still be written to the file system of `path`.
    virtual int free_space(const std::string& path, uint64_t& bytes) = 0;
};

FileSystem& posix_file_system();

// All n bytes, or fewer at the end of the file, or a negative errno.
int64_t read_fully(File& file, void* out, size_t n, uint64_t offset);
// 0, or a negative errno; a write that makes no progress is -ENOSPC.
int write_fully(File& file, const void* data, size_t n, uint64_t offset);

// {io, "cannot WHAT PATH: reason"} of a negative errno.
Error file_error(const char* what, const std::string& path, int negative_errno);

}  // namespace picolm
