#include "cache/directory_store.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "base/format.h"
#include "base/machine.h"
#include "cache/chains.h"
#include "cache/directory_index.h"
#include "cache/directory_payloads.h"
#include "cache/directory_sweep.h"
#include "cache/usage_log.h"
#include "cache/verified_walk.h"

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

}  // namespace

DirectoryStore::DirectoryStore(std::string path, DirectoryStoreOptions options)
    : path_(std::move(path)),
      options_(options),
      files_(options.files ? *options.files : posix_file_system()) {
    if (options_.n_threads == 0)
        options_.n_threads = static_cast<uint32_t>(std::min<size_t>(allowed_cpus().size(), 4));
}

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
    DirectoryPayloads payloads(directory, index, options_.n_threads, match);
    const std::vector<Step> steps = match_verified(chains, query, with_payload, payloads, match);
    match.saved_positions = chains.longest(match.matched);
    if (index.error()) warn(match, file_error("read all of", directory.path(), index.error()).text);
    match.n_damaged += static_cast<uint32_t>(index.damaged().size());
    for (const std::string& path : index.damaged())
        warn(match, path + " is damaged and is not used");
    if (with_payload && !steps.empty() && !options_.read_only)
        note_use(directory, index.header(steps.back().id).own);
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
