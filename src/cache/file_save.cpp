// FileStore's writing verbs: what is missing, where it goes, and rewriting within the limit.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/format.h"
#include "cache/chains.h"
#include "cache/file_access.h"
#include "cache/file_rewrite.h"
#include "cache/file_store.h"
#include "cache/retention.h"
#include "cache/save_plan.h"

namespace picolm::cache {
namespace {

std::optional<uint32_t> find_identity(OpenedLog& opened, std::string_view identity) {
    const Key128 key = identity_key(identity);
    for (uint32_t i = static_cast<uint32_t>(opened.log.entries.size()); i-- > 0;) {
        const LogEntry& entry = opened.log.entries[i];
        if (entry.header.kind == RecordKind::identity && entry.header.identity == key &&
            read_identity(*opened.file, entry) == identity) {
            return i;
        }
    }
    return std::nullopt;
}

// The prompt in the file, with the identity record as one more thing that is there or not.
struct Plan : SavePlan {
    std::optional<uint32_t> identity_entry;
};

Plan plan_save(OpenedLog& opened, const Chains& chains, const SaveRequest& request) {
    const auto identity = find_identity(opened, request.query.identity);
    const auto intact = [&](uint32_t id) {
        return payload_intact(*opened.file, opened.log.entries[id]);
    };
    return {make_plan(chains, request, identity.has_value(), intact), identity};
}

// What the plan lacks, front to back, so that every record that gets there is reachable.
int write_new(RecordWriter& writer, const Chains& chains, const SaveRequest& request,
              const SavePlan& plan, SaveReport& report) {
    if (plan.add_identity) {
        if (const int error = write_identity(writer, request.query.identity)) return error;
    }
    for (const SaveItem& item : plan.items) {
        if (!item.id) {
            if (cancelled(request)) return -ECANCELED;
            if (const int error = write_piece(writer, chains, request, item)) return error;
            report.positions_new += item.n;
        }
        report.positions_total = item.end;
    }
    if (!plan.add_hidden) return 0;
    if (cancelled(request)) return -ECANCELED;
    return write_hidden(writer, chains, request);
}

// Adds to the end of the locked file. What is complete when it fails stays: a reader may have it
// mapped already. The rest is cut off.
Status append(FileSystem& files, const std::string& path, OpenedLog& opened, const Chains& chains,
              const SaveRequest& request, const Plan& plan, SaveReport& report) {
    File& file = *opened.file;
    if (opened.log.file_size > opened.log.valid_end) {
        const int error = file.truncate(opened.log.valid_end);
        if (error) return file_error("repair", path, error);
    }
    RecordWriter writer(file, opened.log.valid_end);
    const int error = write_new(writer, chains, request, plan, report);
    report.bytes_written = writer.bytes_written();
    report.outcome = error == -ECANCELED ? SaveOutcome::cancelled : SaveOutcome::appended;
    if (error) {
        // If this fails as well, a torn tail is left, which the next save cuts off.
        file.truncate(writer.end());
        if (error != -ECANCELED) return file_error("write", path, error);
    }
    if (const int e = file.sync()) return file_error("write", path, e);
    if (!opened.created || writer.end() == 0) return {};
    if (const int e = files.sync_folder_of(path)) return file_error("write the folder of", path, e);
    return {};
}

std::vector<uint32_t> entries_of(const Plan& plan) {
    std::vector<uint32_t> entries;
    if (plan.identity_entry) entries.push_back(*plan.identity_entry);
    for (const SaveItem& item : plan.items) {
        if (item.id) entries.push_back(*item.id);
    }
    if (plan.hidden_id) entries.push_back(*plan.hidden_id);
    return entries;
}

// The old records of the prompt move behind the others, for they are the last that were used; then
// what is new.
int write_prompt(RecordWriter& writer, const Rewrite& rewrite, const Chains& chains,
                 const SaveRequest& request, const Plan& plan, SaveReport& report) {
    std::vector<uint32_t> old;
    for (const uint32_t entry : entries_of(plan)) {
        if (std::find(old.begin(), old.end(), entry) == old.end()) old.push_back(entry);
    }
    if (const int error = rewrite.copy(writer, old, false)) return error;
    return write_new(writer, chains, request, plan, report);
}

// invalid for contents that must not be overwritten.
Status check_ours(const RecordLog& log, const std::string& path) {
    if (log.head == HeadKind::ours || log.head == HeadKind::original) return {};
    return Error{ErrorKind::invalid, why_not_ours(log, path) + "; it is left alone"};
}

// A save that holds the lock.
Result<SaveReport> save_locked(FileSystem& files, const std::string& path, OpenedLog& opened,
                               const SaveRequest& request, uint64_t limit) {
    TRY(check_ours(opened.log, path));
    if (opened.log.head == HeadKind::original) opened.log.valid_end = 0;
    remove_left_over(files, path);

    const std::vector<LogEntry>& entries = opened.log.entries;
    LogIndex index(entries);
    const Chains chains(index, request.query);
    Plan plan = plan_save(opened, chains, request);
    SaveReport report;
    const uint64_t size = opened.log.file_size;
    if (plan.complete() && size <= limit) {
        report.positions_total = static_cast<uint32_t>(chains.units().size());
        return report;
    }
    const Liveness live = find_live(entries, chains.root());
    const uint64_t live_after = live.live_bytes + plan.new_bytes();
    const bool replace = opened.log.head == HeadKind::original;
    const bool too_large = std::max(size, opened.log.valid_end + plan.new_bytes()) > limit;
    const bool wasteful = size > live.live_bytes && size - live.live_bytes > live_after;
    if (!replace && !too_large && !wasteful) {
        TRY(append(files, path, opened, chains, request, plan, report));
        return report;
    }
    const uint64_t bytes = plan.fit(limit, path, report);
    const uint64_t budget = live_after <= limit ? limit : limit / 2;
    const std::vector<uint32_t> others =
        choose_newest(entries, live, entries_of(plan), bytes, budget);
    if ((plan.complete() || plan.items.empty()) && size <= limit) {
        report.outcome = SaveOutcome::over_limit;
        report.positions_total = plan.items.empty() ? 0 : plan.items.back().end;
        return report;
    }
    const Rewrite rewrite{files, path, opened};
    const auto then = [&](RecordWriter& writer) {
        return write_prompt(writer, rewrite, chains, request, plan, report);
    };
    TRY(rewrite.run(others, then, report));
    if (replace && report.outcome == SaveOutcome::rewritten) {
        report.notes.push_back({LogLevel::info, path + " was a KV cache of the original PicoLM and "
                                                       "has been replaced"});
    }
    return report;
}

// A file that was created for a save that then wrote nothing.
void remove_if_empty(FileSystem& files, const std::string& path, OpenedLog& opened) {
    FileInfo info;
    if (opened.created && opened.file->info(info) == 0 && info.size == 0 &&
        still_at(files, path, *opened.file)) {
        files.remove(path);
    }
}

}  // namespace

Result<SaveReport> FileStore::save(const SaveRequest& request) {
    TRY(check(request));
    if (options_.read_only) return SaveReport();
    auto seen = open_for_reading(files_, path_);
    if (!seen) return cannot_save(seen.error());
    if (*seen) {
        OpenedLog& opened = **seen;
        const Status ours = check_ours(opened.log, path_);
        if (!ours) return cannot_save(ours.error());
        // Nothing new takes no lock, so it needs no right to write and disturbs nobody.
        LogIndex index(opened.log.entries);
        const Chains chains(index, request.query);
        if (plan_save(opened, chains, request).complete() &&
            opened.log.file_size <= options_.limit_bytes && !has_left_over(files_, path_)) {
            SaveReport report;
            report.positions_total = static_cast<uint32_t>(chains.units().size());
            return report;
        }
    }
    auto locked = open_locked(files_, path_, true, options_.lock_wait_ms);
    if (!locked) return cannot_save(locked.error());
    auto report = save_locked(files_, path_, **locked, request, options_.limit_bytes);
    remove_if_empty(files_, path_, **locked);
    if (!report) return cannot_save(report.error());
    return report;
}

Result<SaveReport> FileStore::trim(uint64_t limit_bytes) {
    TRY(auto locked, open_locked(files_, path_, false, options_.lock_wait_ms));
    SaveReport report;
    if (!locked) return report;
    OpenedLog& opened = *locked;
    const std::string why_not = why_not_ours(opened.log, path_);
    if (!why_not.empty()) return Error{ErrorKind::invalid, why_not + "; it is left alone"};
    remove_left_over(files_, path_);
    if (opened.log.file_size <= limit_bytes) return report;
    const Liveness live = find_live(opened.log.entries);
    const std::vector<uint32_t> kept = choose_newest(opened.log.entries, live, {}, 0, limit_bytes);
    const Rewrite rewrite{files_, path_, opened};
    TRY(rewrite.run(kept, {}, report));
    return report;
}

}  // namespace picolm::cache
