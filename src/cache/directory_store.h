// A prompt cache in a folder: one file for each record (directory.h), shared by any number of
// prompts, models and processes. docs/KVC.md.
//
// Threads and processes: any number may call anything on the same folder at the same time. Records
// are immutable and appear whole, by rename; readers and writers take no lock. Removing takes one,
// and harms nobody who has mapped what is removed. Two who save the same thing write the same
// bytes.
#pragma once

#include <optional>
#include <string>

#include "base/file_system.h"
#include "cache/directory.h"
#include "cache/store.h"

namespace picolm::cache {

struct DirectoryStoreOptions {
    // Without one: the smaller of 1 GiB and a tenth of what is free.
    std::optional<uint64_t> limit_bytes = {};
    bool read_only = false;  // not even what is used is noted; save() writes nothing
    uint32_t lock_wait_ms = 2000;
    uint32_t n_threads = 0;       // that verify what is loaded; 0: one for each CPU, at most four
    FileSystem* files = nullptr;  // nullptr: the operating system's; tests pass another
};

class DirectoryStore : public Store {
  public:
    // Touches nothing: the folder is created by the first save.
    explicit DirectoryStore(std::string path, DirectoryStoreOptions options = {});

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
    DirectoryStoreOptions options_;
    FileSystem& files_;
};

}  // namespace picolm::cache
