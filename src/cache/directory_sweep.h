// The whole of a directory at once: what is in it, in the order of use, and dropping what was not
// used for longest.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache/directory.h"
#include "cache/store.h"
#include "cache/usage_log.h"

namespace picolm::cache {

int64_t now_ns();  // since 1970
uint64_t total_bytes(const std::vector<ObjectFile>& objects);
// The smaller of 1 GiB and a tenth of what would be free without this cache.
uint64_t default_limit(const Directory& directory, uint64_t own_bytes);

struct Record {
    RecordHeader header;
    ObjectFile file;
    int64_t used_ns = 0;  // the later of when it was written and when it was last used
    uint64_t n_uses = 0;
};
struct Contents {
    std::vector<Record> records;      // with a header that is right; used longest ago first
    std::vector<ObjectFile> damaged;  // no record, or not the one that the name says
};
Result<Contents> read_contents(const Directory& directory);

// The lock of whoever removes records; it ends with the File. busy: not got within wait_ms.
Result<std::unique_ptr<File>> lock_for_removing(const Directory& directory, uint32_t wait_ms);

// Rewrites the log of uses. REQUIRES: the lock.
int compact_usage(const Directory& directory, const std::map<Key128, Usage>& usage);

// Removes damaged and unreachable records, and then whole chains from their ends, those that were
// not used for longest first, until `bytes` more fit into `budget`. The records named by `kept`,
// (parent, own), stay and are part of `bytes`; the first of them is the identity. REQUIRES: the
// lock.
Status make_room(Directory& directory, const std::vector<std::pair<Key128, Key128>>& kept,
                 uint64_t bytes, uint64_t budget, SaveReport& report);

}  // namespace picolm::cache
