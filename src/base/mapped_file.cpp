#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/format.h"

namespace picolm {
namespace {

Error failed(const char* what, const std::string& path) {
    const ErrorKind kind = errno == ENOMEM ? ErrorKind::no_memory : ErrorKind::io;
    return {kind, format("cannot %s %s: %s", what, path.c_str(), std::strerror(errno))};
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
    // O_NONBLOCK: opening a pipe by mistake must not wait for a writer.
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return failed("open", path);
    struct stat info;
    if (fstat(fd, &info) != 0) {
        const Error error = failed("examine", path);
        close(fd);
        return error;
    }
    if (!S_ISREG(info.st_mode)) {
        close(fd);
        return Error{ErrorKind::io,
                     format("%s is %s, not a regular file", path.c_str(),
                            S_ISDIR(info.st_mode) ? "a directory" : "a device or pipe")};
    }
    MappedFile file;
    if (info.st_size > 0) {
        if (static_cast<uint64_t>(info.st_size) > SIZE_MAX) {
            close(fd);
            return Error{ErrorKind::unsupported,
                         format("%s (%s) does not fit into this machine's address space",
                                path.c_str(), format_bytes(info.st_size).c_str())};
        }
        const size_t size = static_cast<size_t>(info.st_size);
        void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
        if (data == MAP_FAILED) {
            const Error error = failed("map", path);
            close(fd);
            return error;
        }
        file.data_ = static_cast<const uint8_t*>(data);
        file.size_ = size;
    }
    close(fd);
    return file;
}

MappedFile::~MappedFile() {
    if (data_) munmap(const_cast<uint8_t*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

}  // namespace picolm
