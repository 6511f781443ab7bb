#include "cache/file_store.h"

#include <cerrno>
#include <map>
#include <utility>

#include "base/format.h"
#include "cache/chains.h"
#include "cache/file_access.h"

namespace picolm::cache {
namespace {

void warn(Match& match, std::string text) {
    match.notes.push_back({LogLevel::warning, std::move(text)});
}

// Whether the file holds our identity, word for word; if not, a note that says what it holds.
bool identity_known(OpenedLog& opened, const Query& query, const std::string& path, Match& match) {
    const Key128 ours = identity_key(query.identity);
    std::optional<std::string> other;
    bool lost = false;  // there are records of ours, but what they belong to is not there
    for (const LogEntry& entry : opened.log.entries) {
        lost |= entry.header.identity == ours;
        if (entry.header.kind != RecordKind::identity) continue;
        const std::optional<std::string> text = read_identity(*opened.file, entry);
        if (text == query.identity) return true;
        if (text) other = text;
    }
    if (lost) {
        warn(match, path + " is damaged: the record that says what it belongs to is lost");
    } else if (other) {
        match.notes.push_back({LogLevel::info, path + " belongs to another model or setting (" +
                                                   describe_difference(*other, query.identity) +
                                                   ")"});
    }
    return false;
}

void note_damage(const RecordLog& log, const std::string& path, Match& match) {
    if (log.damaged_bytes > 0) {
        warn(match, format("%s is damaged: %llu bytes are no valid record and are ignored",
                           path.c_str(), static_cast<unsigned long long>(log.damaged_bytes)));
    }
    if (log.file_size > log.valid_end) {
        warn(match, path +
                        ": the last record is incomplete (a save was interrupted, or is going on) "
                        "and is ignored");
    }
}

// Opens the file for a match; nullopt, and a note where there is something to say, for a miss.
std::optional<OpenedLog> open_for_match(FileSystem& files, const std::string& path, Match& match) {
    auto result = open_for_reading(files, path);
    if (!result) {
        warn(match, "no KV cache is used: " + result.error().text);
        return std::nullopt;
    }
    if (!*result) return std::nullopt;
    OpenedLog opened = std::move(**result);
    const std::string why_not = why_not_ours(opened.log, path);
    if (!why_not.empty()) {
        warn(match, why_not + "; it is not used");
        return std::nullopt;
    }
    note_damage(opened.log, path, match);
    return opened;
}

}  // namespace

FileStore::FileStore(std::string path, FileStoreOptions options)
    : path_(std::move(path)),
      options_(options),
      files_(options.files ? *options.files : posix_file_system()) {}

Match FileStore::find(const Query& query) {
    return match(query, false);
}

Match FileStore::load(const Query& query) {
    return match(query, true);
}

Match FileStore::match(const Query& query, bool with_payload) {
    Match match;
    std::optional<OpenedLog> opened = open_for_match(files_, path_, match);
    if (!opened || opened->log.entries.empty()) return match;
    if (!identity_known(*opened, query, path_, match)) return match;

    const std::vector<LogEntry>& entries = opened->log.entries;
    std::shared_ptr<const uint8_t> bytes;
    if (with_payload) {
        const uint64_t size = opened->log.valid_end;
        const int error =
            size > SIZE_MAX ? -EFBIG : opened->file->map(static_cast<size_t>(size), bytes);
        if (error) {
            warn(match, "no KV cache is used: " + file_error("map", path_, error).text);
            return match;
        }
    }
    const auto usable = [&](uint32_t entry) {
        // Read, not touched through the mapping: a bad sector is then a miss and no SIGBUS.
        if (!with_payload) return true;
        const RecordHeader& h = entries[entry].header;
        match.bytes_read += h.payload_size;
        if (payload_intact(*opened->file, entries[entry])) return true;
        ++match.n_damaged;
        warn(match, h.n == 0 ? path_ + " is damaged: a saved hidden state is not used"
                             : format("%s is damaged: saved positions %u to %u are not used",
                                      path_.c_str(), h.first, h.end() - 1));
        return false;
    };
    const auto payload_of = [&](const LogEntry& entry) -> Bytes {
        if (!with_payload) return {};
        return {bytes.get() + entry.payload_offset(),
                static_cast<size_t>(entry.header.payload_size)};
    };

    LogIndex index(entries);
    const Chains chains(index, query);
    for (const Step& step : chains.walk(query.first, usable)) {
        const LogEntry& entry = entries[step.id];
        match.segments.push_back(
            {entry.header.first, entry.header.n, step.from, step.used, payload_of(entry)});
        match.matched = step.from + step.used;
    }
    match.saved_positions = chains.longest(match.matched);
    if (with_payload && match.matched == query.units.size()) {
        const auto hidden = chains.hidden(match.matched, usable);
        if (hidden) match.hidden = payload_of(entries[*hidden]);
    }
    match.hold = std::move(bytes);
    return match;
}

std::vector<RecordInfo> FileStore::list() {
    std::vector<RecordInfo> list;
    auto result = open_for_reading(files_, path_);
    if (!result || !*result) return list;
    const auto opened = std::make_shared<OpenedLog>(std::move(**result));
    std::map<Key128, std::string> identities;
    for (const LogEntry& entry : opened->log.entries) {
        if (entry.header.kind != RecordKind::identity) continue;
        auto text = read_identity(*opened->file, entry);
        if (text) identities[entry.header.identity] = std::move(*text);
    }
    for (const LogEntry& entry : opened->log.entries) {
        RecordInfo info;
        info.header = entry.header;
        const auto identity = identities.find(entry.header.identity);
        if (identity != identities.end()) info.identity = identity->second;
        info.used_ns = opened->info.modified_ns;  // the best that is known
        info.read = [opened, &entry](const Sink& sink) {
            return read_payload(*opened->file, entry, sink);
        };
        list.push_back(std::move(info));
    }
    return list;
}

}  // namespace picolm::cache
