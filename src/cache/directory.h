// A folder of records, one file each. Owns names, durable writing and listing; no policy.
//
//   DIR/identities/<K_0>       the identity record of each model and setting
//   DIR/xx/<parent>/<own>      a record of kind `pages`; xx: the first two digits of the parent
//   DIR/xx/<own>/<own>         a record of kind `hidden`: its parent is its own key
//   DIR/tmp/<random>           a record being written; older than a minute: left over from a crash
//   DIR/usage                  what was used when (usage_log.h)
//   DIR/lock                   held by whoever removes records
//   DIR/CACHEDIR.TAG           tells backup programs what this is (bford.info/cachedir)
//
// Keys are 32 hexadecimal digits. A record, once under its name, is never changed: the name says
// what is in it, so it does not matter who writes it, or how often. Writers need no lock.
#pragma once

#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_system.h"
#include "cache/record_log.h"

namespace picolm::cache {

std::optional<Key128> parse_key(std::string_view hex);

// A record file as its name and the file system describe it.
struct ObjectFile {
    std::string path;
    Key128 parent;  // K_0 for an identity, as is `own`
    Key128 own;
    bool identity = false;
    uint64_t size = 0;
    int64_t modified_ns = 0;
};

class Directory {
  public:
    Directory(std::string path, FileSystem& files);

    const std::string& path() const { return path_; }
    FileSystem& files() const { return files_; }

    // Whether the folder exists. invalid: something else is at the path.
    Result<bool> exists() const;
    // invalid: what is there is no cache; io: nothing is there.
    Status require() const;
    // Makes the folder and what belongs into it. invalid: it holds files that are no cache's.
    Status create();

    std::string folder_of(const Key128& parent) const;  // DIR/xx/<parent>
    std::string object_path(const Key128& parent, const Key128& own) const;
    std::string identity_path(const Key128& key) const {
        return path_ + "/identities/" + key.hex();
    }
    std::string lock_path() const { return path_ + "/lock"; }
    std::string usage_path() const { return path_ + "/usage"; }

    // Opens a record whose header is right and says what the name says. Otherwise `error` is set:
    // -ENOENT when it is not there, kDamaged when it is no such record or cannot be read back, or
    // why it cannot be opened now.
    struct Opened {
        std::unique_ptr<File> file;
        LogEntry entry;  // at offset 0
    };
    static constexpr int kDamaged = -EBADMSG;
    std::optional<Opened> open(const std::string& path, const Key128& parent, const Key128& own,
                               int& error) const;
    // The identity under that key; nullopt: not there or damaged.
    std::optional<std::string> read_identity(const Key128& key) const;

    // Writes a record under a temporary name, makes its bytes durable and renames it. 0 or a
    // negative errno, of `fill` too. bytes_written grows.
    int put(const std::string& path, const std::function<int(RecordWriter&)>& fill,
            uint64_t& bytes_written);
    // Makes the names of all put() so far durable.
    int sync_names();

    // Own keys of the files behind `parent`; 0 or a negative errno, -ENOENT when there are none.
    int list(const Key128& parent, std::vector<Key128>& own) const;
    // Everything, in no order. What vanishes meanwhile is left out.
    Result<std::vector<ObjectFile>> list_all() const;
    // Removes a record file, and its folder if that is empty then.
    int remove(const ObjectFile& object);
    // Removes temporary files that are older than a minute, at `now_ns` since 1970.
    void remove_left_over(int64_t now_ns);

  private:
    int make_path(const std::string& path);
    int make_folders_for(const std::string& path);

    std::string path_;
    FileSystem& files_;
    std::set<std::string> unsynced_;  // a path in each folder that was changed
};

}  // namespace picolm::cache
