// RedisStore's writing verb: what is missing, sent in portions.
#include "cache/chains.h"
#include "cache/redis_index.h"
#include "cache/redis_payloads.h"
#include "cache/redis_scan.h"
#include "cache/redis_store.h"
#include "cache/save_plan.h"

namespace picolm::cache {
namespace {

// One save that has something to write.
class Saving {
  public:
    Saving(RedisWriter& writer, const Chains& chains, const SaveRequest& request)
        : writer_(writer), chains_(chains), request_(request) {}

    // Front to back, so that every record that gets there is reachable.
    Status write(const SavePlan& plan, SaveReport& report);
    // Sets that are none, and names whose records the server has dropped.
    void tidy(const RedisIndex& index, const RedisKeys& keys) {
        for (const std::string& key : index.wrong_sets()) writer_.add_minor({"DEL", key});
        for (const auto& [parent, own] : index.vanished())
            writer_.add_minor({"ZREM", keys.children(parent), own.hex()});
    }

  private:
    Status put(const RecordHeader& header, const std::function<void(const Sink&)>& payload) {
        const std::optional<std::string> record = encode_record(header, payload);
        if (!record) return Error{ErrorKind::invalid, "a payload of the wrong size"};
        return writer_.put(header, *record);
    }

    RedisWriter& writer_;
    const Chains& chains_;
    const SaveRequest& request_;
};

Status Saving::write(const SavePlan& plan, SaveReport& report) {
    if (plan.add_identity) {
        const std::string_view text = request_.query.identity;
        TRY(put(identity_header(text), [&](const Sink& sink) {
            sink({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
        }));
    }
    for (const SaveItem& item : plan.items) {
        if (!item.id) {
            if (cancelled(request_)) report.outcome = SaveOutcome::cancelled;
            if (report.outcome == SaveOutcome::cancelled) return writer_.flush();
            TRY(put(piece_header(chains_, request_, item),
                    [&](const Sink& sink) { request_.payload(item.first, item.n, sink); }));
            report.positions_new += item.n;
        }
        report.positions_total = item.end;
    }
    if (plan.add_hidden && !cancelled(request_))
        TRY(put(hidden_header(chains_, request_),
                [&](const Sink& sink) { sink(request_.hidden); }));
    return writer_.flush();
}

}  // namespace

Result<SaveReport> RedisStore::save_to(RedisConnection& connection, const SaveRequest& request) {
    SaveReport report;
    connection.set_deadline(deadline(0));
    RedisIndex index(connection, keys_);
    const Chains chains(index, request.query);
    TRY(index.read(chains.keys(), 0, true));
    Match ignored;  // what is damaged is written again without a word
    RedisPayloads payloads(connection, index, ignored);
    const SavePlan plan =
        make_plan(chains, request, index.identity() == request.query.identity, [&](uint32_t id) {
            return payloads.verify({&id, 1});
        });
    TRY(Status(payloads.status()));
    if (plan.complete()) {
        report.positions_total = static_cast<uint32_t>(chains.units().size());
        return report;
    }
    connection.set_deadline(deadline(plan.new_bytes()));
    RedisWriter writer(connection, keys_, address_.ttl_seconds);
    Saving saving(writer, chains, request);
    saving.tidy(index, keys_);
    report.outcome = SaveOutcome::appended;
    TRY(saving.write(plan, report));
    report.bytes_written = writer.bytes_written();
    return report;
}

Result<SaveReport> RedisStore::save(const SaveRequest& request) {
    TRY(check(request));
    if (options_.read_only || given_up_) return SaveReport();
    auto connection = RedisConnection::open(address_);
    if (!connection) {
        given_up_ = true;
        return cannot_save(connection.error());
    }
    auto report = save_to(**connection, request);
    // One that says no, because it is full, may still be read from.
    if ((*connection)->broken()) given_up_ = true;
    if (!report) return cannot_save(report.error());
    return report;
}

}  // namespace picolm::cache
