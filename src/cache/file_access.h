// Opens the file behind a cache path for reading or, locked, for writing, and says in words why
// not.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/file_system.h"
#include "cache/record_log.h"

namespace picolm::cache {

struct OpenedLog {
    std::unique_ptr<File> file;
    FileInfo info;
    RecordLog log;
    bool created = false;  // by this call
};

// nullopt when nothing is at the path. invalid: not a regular file (it is not even opened).
Result<std::optional<OpenedLog>> open_for_reading(FileSystem& files, const std::string& path);

// The file with the exclusive lock held, created if `create` and absent, and read after the lock
// was got. The lock ends with the File. busy: not got within wait_ms.
Result<std::optional<OpenedLog>> open_locked(FileSystem& files, const std::string& path,
                                             bool create, uint32_t wait_ms);

// Whether `path` still names the file that `file` is.
bool still_at(FileSystem& files, const std::string& path, File& file);

// Why the contents are no cache of this program; "" when they are.
std::string why_not_ours(const RecordLog& log, const std::string& path);

}  // namespace picolm::cache
