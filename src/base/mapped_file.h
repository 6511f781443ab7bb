// A whole regular file, mapped read-only and shared. Pages are the kernel's to drop and re-read;
// a file that shrinks while mapped raises SIGBUS, which src/app turns into one line and an exit.
#pragma once

#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace picolm {

class MappedFile {
  public:
    // io: cannot be opened, is not a regular file, or cannot be mapped. An empty file maps to no
    // bytes.
    static Result<MappedFile> open(const std::string& path);

    MappedFile() = default;
    ~MappedFile();
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;

    Bytes bytes() const { return {data_, size_}; }

  private:
    const uint8_t* data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace picolm
