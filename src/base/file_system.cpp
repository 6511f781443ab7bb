// 64-bit offsets on 32-bit machines as well.
#define _FILE_OFFSET_BITS 64

#include "base/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "base/format.h"

namespace picolm {
namespace {

// Repeats a system call that a signal interrupted; its result, or -errno.
template <typename Call>
auto retry(Call call) -> decltype(call()) {
    for (;;) {
        const auto result = call();
        if (result >= 0) return result;
        if (errno != EINTR) return -errno;
    }
}

void describe(const struct stat& from, FileInfo& to) {
    to.kind = S_ISREG(from.st_mode)   ? FileKind::regular
              : S_ISDIR(from.st_mode) ? FileKind::directory
              : S_ISLNK(from.st_mode) ? FileKind::symlink
                                      : FileKind::other;
    to.size = static_cast<uint64_t>(from.st_size);
    to.device = static_cast<uint64_t>(from.st_dev);
    to.inode = static_cast<uint64_t>(from.st_ino);
    to.modified_ns = int64_t{from.st_mtim.tv_sec} * 1000000000 + from.st_mtim.tv_nsec;
}

class PosixFile : public File {
  public:
    explicit PosixFile(int fd) : fd_(fd) {}
    ~PosixFile() override { close(fd_); }
    PosixFile(const PosixFile&) = delete;
    PosixFile& operator=(const PosixFile&) = delete;

    int64_t read_at(void* out, size_t n, uint64_t offset) override {
        return retry([&] { return pread(fd_, out, n, static_cast<off_t>(offset)); });
    }
    int64_t write_at(const void* data, size_t n, uint64_t offset) override {
        return retry([&] { return pwrite(fd_, data, n, static_cast<off_t>(offset)); });
    }
    int truncate(uint64_t size) override {
        return retry([&] { return ftruncate(fd_, static_cast<off_t>(size)); });
    }
    int sync() override {
        return retry([&] { return fdatasync(fd_); });
    }
    int try_lock() override {
        return retry([&] { return flock(fd_, LOCK_EX | LOCK_NB); });
    }
    int info(FileInfo& out) override {
        struct stat found;
        if (fstat(fd_, &found) != 0) return -errno;
        describe(found, out);
        return 0;
    }
    int map(size_t size, std::shared_ptr<const uint8_t>& out) override {
        void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd_, 0);
        if (data == MAP_FAILED) return -errno;
        out = {static_cast<const uint8_t*>(data),
               [size](const uint8_t* p) { munmap(const_cast<uint8_t*>(p), size); }};
        return 0;
    }

  private:
    int fd_;
};

class PosixFileSystem : public FileSystem {
  public:
    int open(const std::string& path, Mode mode, std::unique_ptr<File>& out) override {
        // O_NONBLOCK: a pipe at this path must not wait for its other end.
        int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
        flags |= mode == Mode::read ? O_RDONLY : O_RDWR;
        if (mode == Mode::create) flags |= O_CREAT | O_EXCL;
        if (mode == Mode::append) flags |= O_CREAT | O_APPEND;
        const int fd = retry([&] { return ::open(path.c_str(), flags, 0600); });
        if (fd < 0) return fd;
        out = std::make_unique<PosixFile>(fd);
        return 0;
    }
    int info(const std::string& path, FileInfo& out) override {
        struct stat found;
        if (lstat(path.c_str(), &found) != 0) return -errno;
        describe(found, out);
        return 0;
    }
    int rename(const std::string& from, const std::string& to) override {
        return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : -errno;
    }
    int remove(const std::string& path) override { return unlink(path.c_str()) == 0 ? 0 : -errno; }
    int sync_folder_of(const std::string& path) override {
        const size_t slash = path.rfind('/');
        const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
        const int fd =
            retry([&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
        if (fd < 0) return fd;
        const int error = retry([&] { return fsync(fd); });
        close(fd);
        // Some file systems cannot sync a folder and have no need to.
        return error == -EINVAL ? 0 : error;
    }
    int make_folder(const std::string& path) override {
        return mkdir(path.c_str(), 0700) == 0 ? 0 : -errno;
    }
    int remove_folder(const std::string& path) override {
        return rmdir(path.c_str()) == 0 ? 0 : -errno;
    }
    int list_folder(const std::string& path, std::vector<std::string>& names) override {
        const int fd = retry(
            [&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW); });
        if (fd < 0) return fd;
        DIR* folder = fdopendir(fd);
        if (!folder) {
            const int error = -errno;
            close(fd);
            return error;
        }
        errno = 0;
        while (const dirent* entry = readdir(folder)) {
            const std::string_view name = entry->d_name;
            if (name != "." && name != "..") names.emplace_back(name);
        }
        const int error = -errno;
        closedir(folder);
        return error;
    }
    int free_space(const std::string& path, uint64_t& bytes) override {
        struct statvfs found;
        if (retry([&] { return statvfs(path.c_str(), &found); }) != 0) return -errno;
        bytes = uint64_t{found.f_bavail} * found.f_frsize;
        return 0;
    }
};

}  // namespace

FileSystem& posix_file_system() {
    static PosixFileSystem system;
    return system;
}

int64_t read_fully(File& file, void* out, size_t n, uint64_t offset) {
    size_t done = 0;
    while (done < n) {
        const int64_t got =
            file.read_at(static_cast<uint8_t*>(out) + done, n - done, offset + done);
        if (got < 0) return got;
        if (got == 0) break;
        done += static_cast<size_t>(got);
    }
    return static_cast<int64_t>(done);
}

int write_fully(File& file, const void* data, size_t n, uint64_t offset) {
    size_t done = 0;
    while (done < n) {
        const int64_t put =
            file.write_at(static_cast<const uint8_t*>(data) + done, n - done, offset + done);
        if (put < 0) return static_cast<int>(put);
        if (put == 0) return -ENOSPC;
        done += static_cast<size_t>(put);
    }
    return 0;
}

Error file_error(const char* what, const std::string& path, int negative_errno) {
    return {ErrorKind::io,
            format("cannot %s %s: %s", what, path.c_str(), std::strerror(-negative_errno))};
}

}  // namespace picolm
