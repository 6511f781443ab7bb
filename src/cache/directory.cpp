#include "cache/directory.h"

#include <algorithm>
#include <cerrno>
#include <random>

#include "base/format.h"

namespace picolm::cache {
namespace {

constexpr int64_t kMinute = 60'000'000'000;

constexpr std::string_view kTag =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This folder is a prompt cache of picolm: it can be removed at any time.\n";

std::string parent_of(const std::string& path) {
    return path.substr(0, path.rfind('/'));
}

bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

bool is_shard(std::string_view name) {
    return name.size() == 2 && is_hex(name[0]) && is_hex(name[1]);
}

bool is_ours(std::string_view name) {
    static constexpr std::string_view kNames[] = {"identities", "tmp", "usage", "lock",
                                                  "CACHEDIR.TAG"};
    return is_shard(name) ||
           std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

std::string random_name() {
    std::random_device device;
    return format("%08x%08x", device(), device());
}

}  // namespace

std::optional<Key128> parse_key(std::string_view hex) {
    if (hex.size() != 32 || !std::all_of(hex.begin(), hex.end(), is_hex)) return std::nullopt;
    const auto half = [&](size_t from) {
        uint64_t value = 0;
        for (size_t i = from; i < from + 16; ++i)
            value = value << 4 |
                    static_cast<uint64_t>(hex[i] <= '9' ? hex[i] - '0' : hex[i] - 'a' + 10);
        return value;
    };
    return Key128{half(16), half(0)};
}

Directory::Directory(std::string path, FileSystem& files) : path_(std::move(path)), files_(files) {
    while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
}

Result<bool> Directory::exists() const {
    FileInfo info;
    const int error = files_.info(path_, info);
    if (error == -ENOENT) return false;
    if (error) return file_error("examine", path_, error);
    if (info.kind == FileKind::directory) return true;
    return Error{ErrorKind::invalid,
                 path_ +
                     (info.kind == FileKind::symlink ? " is a symbolic link" : " is no folder") +
                     "; it is left alone"};
}

Status Directory::require() const {
    TRY(const bool there, exists());
    if (!there) return Error{ErrorKind::io, "there is no KV cache at " + path_};
    FileInfo info;
    const int error = files_.info(path_ + "/identities", info);
    if (error && error != -ENOENT) return file_error("examine", path_ + "/identities", error);
    if (!error && info.kind == FileKind::directory) return {};
    return Error{ErrorKind::invalid, path_ + " is not a KV cache"};
}

// The folder, and those above it that are missing.
int Directory::make_path(const std::string& path) {
    int error = files_.make_folder(path);
    const std::string above = parent_of(path);
    if (error == -ENOENT && !above.empty() && above != path) {
        error = make_path(above);
        if (!error) error = files_.make_folder(path);
    }
    if (!error) unsynced_.insert(path);
    return error == -EEXIST ? 0 : error;
}

Status Directory::create() {
    TRY(const bool there, exists());
    if (!there) {
        const int error = make_path(path_);
        if (error) return file_error("create", path_, error);
    }
    FileInfo info;
    if (files_.info(path_ + "/identities", info) == 0 && info.kind == FileKind::directory)
        return {};
    std::vector<std::string> names;
    if (const int error = files_.list_folder(path_, names)) return file_error("read", path_, error);
    const auto foreign =
        std::find_if(names.begin(), names.end(), [](const auto& name) { return !is_ours(name); });
    if (foreign != names.end())
        return Error{ErrorKind::invalid,
                     format("%s holds %s, so it is no KV cache; it is left alone", path_.c_str(),
                            printable(*foreign).c_str())};
    std::unique_ptr<File> tag;
    if (files_.open(path_ + "/CACHEDIR.TAG", FileSystem::Mode::create, tag) == 0 && tag)
        (void)write_fully(*tag, kTag.data(), kTag.size(), 0);
    for (const char* name : {"/tmp", "/identities"}) {
        const int error = files_.make_folder(path_ + name);
        if (error && error != -EEXIST) return file_error("create", path_ + name, error);
    }
    unsynced_.insert(path_ + "/tmp");
    return {};
}

std::string Directory::folder_of(const Key128& parent) const {
    const std::string hex = parent.hex();
    return path_ + "/" + hex.substr(0, 2) + "/" + hex;
}

std::string Directory::object_path(const Key128& parent, const Key128& own) const {
    return folder_of(parent) + "/" + own.hex();
}

std::optional<Directory::Opened> Directory::open(const std::string& path, const Key128& parent,
                                                 const Key128& own, int& error) const {
    Opened opened;
    error = files_.open(path, FileSystem::Mode::read, opened.file);
    FileInfo info;
    if (!error) error = opened.file->info(info);
    uint8_t head[kMaxHead];
    int64_t got = 0;
    if (!error && info.kind == FileKind::regular) {
        got = read_fully(*opened.file, head, sizeof head, 0);
        error = got < 0 ? static_cast<int>(got) : 0;
    }
    // A symbolic link, or a bad sector: this record will not come back.
    if (error == -ELOOP || error == -EIO) error = kDamaged;
    if (error) return std::nullopt;
    const auto header = parse_header(Bytes(head, static_cast<size_t>(got)));
    if (!header || header->parent != parent || header->own != own ||
        header->total_size() != info.size) {
        error = kDamaged;
        return std::nullopt;
    }
    opened.entry.header = *header;
    return opened;
}

std::optional<std::string> Directory::read_identity(const Key128& key) const {
    int error = 0;
    const auto opened = open(identity_path(key), key, key, error);
    if (!opened || opened->entry.header.kind != RecordKind::identity) return std::nullopt;
    return cache::read_identity(*opened->file, opened->entry);
}

// The folders between DIR and a record.
int Directory::make_folders_for(const std::string& path) {
    const std::string folder = parent_of(path), shard = parent_of(folder);
    if (shard.size() < path_.size()) return make_path(folder);  // DIR/identities
    const int error = files_.make_folder(shard);
    if (!error) unsynced_.insert(shard);
    if (error && error != -EEXIST) return error;
    return make_path(folder);
}

int Directory::put(const std::string& path, const std::function<int(RecordWriter&)>& fill,
                   uint64_t& bytes_written) {
    const std::string temporary = path_ + "/tmp/" + random_name();
    std::unique_ptr<File> file;
    int error = files_.open(temporary, FileSystem::Mode::create, file);
    if (error == -ENOENT) {
        error = files_.make_folder(path_ + "/tmp");
        if (!error || error == -EEXIST)
            error = files_.open(temporary, FileSystem::Mode::create, file);
    }
    if (error) return error;
    RecordWriter writer(*file, 0);
    error = fill(writer);
    bytes_written += writer.bytes_written();
    if (!error) error = file->sync();
    if (!error) error = files_.rename(temporary, path);
    // Who removes records also removes the folders that they leave empty.
    for (int attempt = 0; error == -ENOENT && attempt < 3; ++attempt) {
        error = make_folders_for(path);
        if (!error) error = files_.rename(temporary, path);
    }
    if (error)
        files_.remove(temporary);
    else
        unsynced_.insert(path);
    return error;
}

int Directory::sync_names() {
    // One path for each folder is enough.
    std::string folder;
    int first_error = 0;
    for (const std::string& path : unsynced_) {
        if (parent_of(path) == folder) continue;
        folder = parent_of(path);
        const int error = files_.sync_folder_of(path);
        if (error && error != -ENOENT && !first_error) first_error = error;
    }
    unsynced_.clear();
    return first_error;
}

int Directory::list(const Key128& parent, std::vector<Key128>& own) const {
    std::vector<std::string> names;
    const int error = files_.list_folder(folder_of(parent), names);
    for (const std::string& name : names) {
        if (const std::optional<Key128> key = parse_key(name)) own.push_back(*key);
    }
    return error;
}

Result<std::vector<ObjectFile>> Directory::list_all() const {
    std::vector<ObjectFile> objects;
    const auto add = [&](ObjectFile object) {
        FileInfo info;
        if (files_.info(object.path, info) != 0 || info.kind != FileKind::regular) return;
        object.size = info.size;
        object.modified_ns = info.modified_ns;
        objects.push_back(std::move(object));
    };
    // -ENOENT: somebody has just removed it.
    const auto names_in = [&](const std::string& folder,
                              std::vector<std::string>& names) -> Status {
        const int error = files_.list_folder(folder, names);
        if (error && error != -ENOENT && error != -ENOTDIR)
            return file_error("read", folder, error);
        return {};
    };
    std::vector<std::string> identities, shards;
    TRY(names_in(path_ + "/identities", identities));
    for (const std::string& name : identities) {
        if (const auto key = parse_key(name)) add({identity_path(*key), *key, *key, true});
    }
    TRY(names_in(path_, shards));
    for (const std::string& shard : shards) {
        if (!is_shard(shard)) continue;
        std::vector<std::string> parents;
        TRY(names_in(path_ + "/" + shard, parents));
        for (const std::string& name : parents) {
            const auto parent = parse_key(name);
            if (!parent) continue;
            std::vector<Key128> own;
            const int error = list(*parent, own);
            if (error && error != -ENOENT && error != -ENOTDIR)
                return file_error("read", folder_of(*parent), error);
            for (const Key128& key : own) add({object_path(*parent, key), *parent, key});
        }
    }
    return objects;
}

int Directory::remove(const ObjectFile& object) {
    const int error = files_.remove(object.path);
    if (error && error != -ENOENT) return error;
    if (!object.identity) files_.remove_folder(parent_of(object.path));
    return 0;
}

void Directory::remove_left_over(int64_t now_ns) {
    std::vector<std::string> names;
    if (files_.list_folder(path_ + "/tmp", names) != 0) return;
    for (const std::string& name : names) {
        FileInfo info;
        const std::string path = path_ + "/tmp/" + name;
        if (files_.info(path, info) == 0 && info.kind == FileKind::regular &&
            info.modified_ns < now_ns - kMinute)
            files_.remove(path);
    }
}

}  // namespace picolm::cache
