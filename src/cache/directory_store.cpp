#include "cache/directory_store.h"

#include <cerrno>
#include <map>
#include <utility>

#include "base/format.h"
#include "cache/chains.h"
#include "cache/directory_index.h"
#include "cache/directory_sweep.h"
#include "cache/usage_log.h"

namespace picolm::cache {
namespace {

constexpr uint64_t kLargeUsage = 256 << 10;  // bytes of the usage log from which it is compacted

void warn(Match& match, std::string text) {
    match.notes.push_back({LogLevel::warning, std::move(text)});
}

// Whether the folder knows our identity, word for word; if not, a note that says what it knows.
bool identity_known(const Directory& directory, const Query& query, Match& match) {
    const Key128 key = identity_key(query.identity);
    if (directory.read_identity(key) == query.identity) return true;
    FileInfo info;
    if (directory.files().info(directory.identity_path(key), info) == 0) {
        ++match.n_damaged;
        warn(match, directory.identity_path(key) + " is damaged: what belongs to it is not used");
        return false;
    }
    std::vector<std::string> names;
    (void)directory.files().list_folder(directory.path() + "/identities", names);
    for (const std::string& name : names) {
        const std::optional<Key128> other = parse_key(name);
        const auto text = other ? directory.read_identity(*other) : std::nullopt;
        if (!text) continue;
        match.notes.push_back(
            {LogLevel::info,
             format("%s holds nothing for this model and setting yet, but for %zu other%s (%s)",
                    directory.path().c_str(), names.size(), names.size() > 1 ? "s" : "",
                    describe_difference(*text, query.identity).c_str())});
        break;
    }
    return false;
}

void note_use(const Directory& directory, const Key128& own) {
    uint64_t size = 0;
    (void)add_usage(directory.files(), directory.usage_path(), own, now_ns(), size);
    if (size < kLargeUsage) return;
    const auto lock = lock_for_removing(directory, 0);
    if (lock) (void)compact_usage(directory, read_usage(directory.files(), directory.usage_path()));
}

// Mapped payloads, alive as long as this is.
using Mappings = std::vector<std::shared_ptr<const uint8_t>>;

}  // namespace

DirectoryStore::DirectoryStore(std::string path, DirectoryStoreOptions options)
    : path_(std::move(path)),
      options_(options),
      files_(options.files ? *options.files : posix_file_system()) {}

Match DirectoryStore::find(const Query& query) {
    return match(query, false);
}

Match DirectoryStore::load(const Query& query) {
    return match(query, true);
}

Match DirectoryStore::match(const Query& query, bool with_payload) {
    Match match;
    const Directory directory(path_, files_);
    const Result<bool> there = directory.exists();
    if (!there) warn(match, "no KV cache is used: " + there.error().text);
    if (!there || !*there || !identity_known(directory, query, match)) return match;

    DirectoryIndex index(directory);
    const Chains chains(index, query);
    auto mappings = std::make_shared<Mappings>();
    std::map<uint32_t, Bytes> payloads;  // of the records that may be used
    const auto usable = [&](uint32_t id) {
        if (!with_payload) return true;
        const RecordHeader h = index.header(id);
        int error = 0;
        const auto opened = directory.open(index.path(id), h.parent, h.own, error);
        if (error == -ENOENT) return false;  // somebody has just removed it
        std::shared_ptr<const uint8_t> bytes;
        if (opened) {
            match.bytes_read += h.payload_size;
            // Read, not touched through the mapping: a bad sector is then a miss and no SIGBUS.
            if (!payload_intact(*opened->file, opened->entry)) error = Directory::kDamaged;
        }
        if (error == Directory::kDamaged) {
            ++match.n_damaged;
            warn(match, h.n == 0 ? index.path(id) + " is damaged: a saved hidden state is not used"
                                 : format("%s is damaged: saved positions %u to %u are not used",
                                          index.path(id).c_str(), h.first, h.end() - 1));
            return false;
        }
        const uint64_t size = h.total_size();
        if (!error)
            error = size > SIZE_MAX ? -EFBIG : opened->file->map(static_cast<size_t>(size), bytes);
        if (error) {
            warn(match,
                 "a saved record is not used: " + file_error("map", index.path(id), error).text);
            return false;
        }
        payloads[id] = {bytes.get() + h.head_size(), static_cast<size_t>(h.payload_size)};
        mappings->push_back(std::move(bytes));
        return true;
    };

    std::optional<Key128> last;
    for (const Step& step : chains.walk(0, usable)) {
        const RecordHeader& h = index.header(step.id);
        match.segments.push_back({h.first, h.n, step.from, step.used, payloads[step.id]});
        match.matched = step.from + step.used;
        last = h.own;
    }
    match.saved_positions = chains.longest(match.matched);
    if (with_payload && match.matched == query.units.size()) {
        const auto hidden = chains.hidden(match.matched, usable);
        if (hidden) match.hidden = payloads[*hidden];
    }
    if (index.error()) warn(match, file_error("read all of", directory.path(), index.error()).text);
    match.n_damaged += static_cast<uint32_t>(index.damaged().size());
    for (const std::string& path : index.damaged())
        warn(match, path + " is damaged and is not used");
    if (with_payload && last && !options_.read_only) note_use(directory, *last);
    match.hold = std::move(mappings);
    return match;
}

std::vector<RecordInfo> DirectoryStore::list() {
    std::vector<RecordInfo> list;
    const Directory directory(path_, files_);
    const auto contents = read_contents(directory);
    if (!contents) return list;
    std::map<Key128, std::string> identities;
    for (const Record& record : contents->records) {
        const RecordHeader& h = record.header;
        if (!identities.contains(h.identity))
            identities[h.identity] = directory.read_identity(h.identity).value_or("");
        RecordInfo info{h, identities[h.identity], record.used_ns, record.n_uses, {}};
        info.read = [directory, file = record.file](const Sink& sink) {
            int error = 0;
            const auto opened = directory.open(file.path, file.parent, file.own, error);
            return opened && read_payload(*opened->file, opened->entry, sink);
        };
        list.push_back(std::move(info));
    }
    return list;
}

}  // namespace picolm::cache
