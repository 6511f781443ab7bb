// DirectoryStore's writing verbs: what is missing, room for it, and one file for each record.
#include <cerrno>

#include "base/format.h"
#include "cache/chains.h"
#include "cache/directory_index.h"
#include "cache/directory_store.h"
#include "cache/directory_sweep.h"
#include "cache/save_plan.h"

namespace picolm::cache {
namespace {

// One save: the folder, the prompt, and what of it is missing.
class Saving {
  public:
    Saving(Directory& directory, const SaveRequest& request)
        : directory_(directory),
          request_(request),
          index_(directory),
          chains_(index_, request.query) {}

    SavePlan plan() {
        const bool known = directory_.read_identity(chains_.root()) ==
                           std::optional(std::string(request_.query.identity));
        return make_plan(chains_, request_, known, [&](uint32_t id) { return intact(id); });
    }
    // What of the plan is there already, as make_room() wants it.
    std::vector<std::pair<Key128, Key128>> kept(const SavePlan& plan) const {
        std::vector<std::pair<Key128, Key128>> keys = {{chains_.root(), chains_.root()}};
        const auto add = [&](uint32_t id) {
            keys.emplace_back(chains_.header(id).parent, chains_.header(id).own);
        };
        for (const SaveItem& item : plan.items)
            if (item.id) add(*item.id);
        if (plan.hidden_id) add(*plan.hidden_id);
        return keys;
    }
    // Front to back, so that every record that gets there is reachable.
    Status write(const SavePlan& plan, SaveReport& report);

    uint32_t n_units() const { return static_cast<uint32_t>(chains_.units().size()); }

  private:
    bool intact(uint32_t id) {
        const RecordHeader h = index_.header(id);
        int error = 0;
        const auto opened = directory_.open(index_.path(id), h.parent, h.own, error);
        return opened && payload_intact(*opened->file, opened->entry);
    }
    Status put(const std::string& path, SaveReport& report,
               const std::function<int(RecordWriter&)>& fill) {
        const int error = directory_.put(path, fill, report.bytes_written);
        if (error == -ECANCELED) return Error{ErrorKind::cancelled, "cancelled"};
        if (error) return file_error("write", path, error);
        return {};
    }

    Directory& directory_;
    const SaveRequest& request_;
    DirectoryIndex index_;
    Chains chains_;
};

Status Saving::write(const SavePlan& plan, SaveReport& report) {
    if (plan.add_identity) {
        TRY(put(directory_.identity_path(chains_.root()), report, [&](RecordWriter& writer) {
            return write_identity(writer, request_.query.identity);
        }));
    }
    for (const SaveItem& item : plan.items) {
        if (!item.id) {
            if (cancelled(request_)) return Error{ErrorKind::cancelled, "cancelled"};
            const auto path =
                directory_.object_path(chains_.key(item.first), chains_.key(item.end));
            TRY(put(path, report, [&](RecordWriter& writer) {
                return write_piece(writer, chains_, request_, item);
            }));
            report.positions_new += item.n;
        }
        report.positions_total = item.end;
    }
    if (!plan.add_hidden) return {};
    if (cancelled(request_)) return Error{ErrorKind::cancelled, "cancelled"};
    const Key128& end = chains_.key(n_units());
    return put(directory_.object_path(end, end), report,
               [&](RecordWriter& writer) { return write_hidden(writer, chains_, request_); });
}

Result<SaveReport> save_to(Directory& directory, const SaveRequest& request,
                           std::optional<uint64_t> limit_bytes, uint32_t lock_wait_ms) {
    SaveReport report;
    Saving saving(directory, request);
    SavePlan plan = saving.plan();
    if (plan.complete()) {
        report.positions_total = saving.n_units();
        return report;
    }
    directory.remove_left_over(now_ns());
    TRY(const std::vector<ObjectFile> objects, directory.list_all());
    const uint64_t there = total_bytes(objects);
    const uint64_t limit = limit_bytes ? *limit_bytes : default_limit(directory, there);
    if (there + plan.new_bytes() > limit) {
        const uint64_t bytes = plan.fit(limit, directory.path(), report);
        if (plan.complete() || plan.items.empty()) {
            report.outcome = SaveOutcome::over_limit;
            report.positions_total = plan.items.empty() ? 0 : plan.items.back().end;
            return report;
        }
        TRY(const auto lock, lock_for_removing(directory, lock_wait_ms));
        // A little more room than is needed now: looking at everything is not for every save.
        TRY(make_room(directory, saving.kept(plan), bytes, limit - limit / 16, report));
    }
    report.outcome = SaveOutcome::appended;
    const Status written = saving.write(plan, report);
    // What is there stays, whatever happened to the rest.
    const int error = directory.sync_names();
    if (!written && written.error().kind == ErrorKind::cancelled) {
        report.outcome = SaveOutcome::cancelled;
        return report;
    }
    if (!written) return written.error();
    if (error) return file_error("write the folders of", directory.path(), error);
    return report;
}

}  // namespace

Result<SaveReport> DirectoryStore::save(const SaveRequest& request) {
    TRY(check(request));
    if (options_.read_only) return SaveReport();
    Directory directory(path_, files_);
    Status ready = directory.create();
    if (!ready) return cannot_save(ready.error());
    auto report = save_to(directory, request, options_.limit_bytes, options_.lock_wait_ms);
    if (!report) return cannot_save(report.error());
    return report;
}

Result<SaveReport> DirectoryStore::trim(uint64_t limit_bytes) {
    SaveReport report;
    Directory directory(path_, files_);
    TRY(const bool there, directory.exists());
    if (!there) return report;
    TRY(directory.require());
    TRY(const auto lock, lock_for_removing(directory, options_.lock_wait_ms));
    directory.remove_left_over(now_ns());
    TRY(const std::vector<ObjectFile> objects, directory.list_all());
    if (total_bytes(objects) <= limit_bytes) return report;
    TRY(make_room(directory, {}, 0, limit_bytes, report));
    report.outcome = SaveOutcome::rewritten;
    return report;
}

}  // namespace picolm::cache
