// A prompt cache in one file: a log of records (record.h, docs/KVC.md), append-only for whatever is
// valid. Owns locking, torn tails, the size limit and rewriting; the bytes are record.h's.
//
// Threads and processes: any number may call anything on the same path at the same time. Readers
// take no lock: a record's header is written after its payload, valid records are never changed or
// cut off in place, and a rewrite makes a new file, so a mapping stays good for as long as it is
// held. Writers hold an exclusive lock on the file; who does not get it in time skips saving.
#pragma once

#include <string>

#include "base/file_system.h"
#include "cache/store.h"

namespace picolm::cache {

inline constexpr uint64_t kDefaultFileLimit = uint64_t{64} << 20;

struct FileStoreOptions {
    uint64_t limit_bytes = kDefaultFileLimit;
    uint32_t lock_wait_ms = 200;
    bool read_only = false;       // save() writes nothing
    FileSystem* files = nullptr;  // nullptr: the operating system's; tests pass another
};

class FileStore : public Store {
  public:
    // Touches nothing: the file is opened by each call, and created by the first save.
    explicit FileStore(std::string path, FileStoreOptions options = {});

    Match find(const Query& query) override;
    Match load(const Query& query) override;
    Result<SaveReport> save(const SaveRequest& request) override;
    Result<SaveReport> trim(uint64_t limit_bytes) override;
    std::vector<RecordInfo> list() override;
    Result<VerifyReport> verify(bool repair) override;
    Result<uint32_t> remove(const std::set<RecordName>& records) override;
    Result<SaveReport> add(std::span<const RecordInfo> records) override;

    const std::string& path() const { return path_; }

  private:
    Match match(const Query& query, bool with_payload);

    std::string path_;
    FileStoreOptions options_;
    FileSystem& files_;
};

}  // namespace picolm::cache
