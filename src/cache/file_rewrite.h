// Replaces a cache file by a new one that holds some of its records, and perhaps more.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "cache/file_access.h"
#include "cache/record_log.h"
#include "cache/store.h"

namespace picolm::cache {

// Of a file that is locked and stays so. The temporary name needs no process id: only who holds the
// lock uses it, so anything found there is left over from a process that was killed.
struct Rewrite {
    FileSystem& files;
    const std::string& path;
    OpenedLog& opened;

    // Copies `others` (entries; those that are damaged are left out), then lets `then`, if given,
    // add to that and say 0 or a negative errno. -ECANCELED leaves the file as it was.
    Status run(std::span<const uint32_t> others, const std::function<int(RecordWriter&)>& then,
               SaveReport& report) const;
    int copy(RecordWriter& writer, std::span<const uint32_t> entries, bool leave_out_damaged) const;

  private:
    Status put_in_place(File& file, const std::string& temporary, uint64_t end) const;
};

// Whether a rewrite that was killed has left its file.
bool has_left_over(FileSystem& files, const std::string& path);
void remove_left_over(FileSystem& files, const std::string& path);

}  // namespace picolm::cache
