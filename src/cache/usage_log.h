// What of a directory was used when: a file to which every use adds one small entry, so that no
// record is rewritten for it. Losing some of it harms nobody: it only orders what is removed.
//
//   offset  size  field (little-endian)
//        0    16  own key of the last record that was used; those before it count as used too
//       16     8  time, in nanoseconds since 1970
//       24     8  number of uses
//       32     8  XXH3-64 of the bytes before
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/file_system.h"
#include "base/hash.h"

namespace picolm::cache {

struct Usage {
    int64_t last_ns = 0;
    uint64_t n = 0;
};

// Adds one use; `size`: of the file then. 0 or a negative errno.
int add_usage(FileSystem& files, const std::string& path, const Key128& own, int64_t now_ns,
              uint64_t& size);

// Everything that can be read; empty when there is nothing.
std::map<Key128, Usage> read_usage(FileSystem& files, const std::string& path);

// Replaces the file by one entry for each key, by way of `temporary`. For whoever holds the lock.
int write_usage(FileSystem& files, const std::string& path, const std::string& temporary,
                const std::map<Key128, Usage>& usage);

}  // namespace picolm::cache
