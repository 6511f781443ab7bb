#include "cache/save_plan.h"

#include <algorithm>

#include "base/format.h"

namespace picolm::cache {
namespace {

uint64_t record_bytes(uint32_t n, uint64_t payload) {
    RecordHeader header;
    header.n = n;
    header.payload_size = payload;
    return header.total_size();
}

}  // namespace

bool SavePlan::complete() const {
    const auto lacks = [](const SaveItem& item) { return !item.id; };
    return !add_identity && !add_hidden && std::none_of(items.begin(), items.end(), lacks);
}

uint64_t SavePlan::new_bytes() const {
    uint64_t bytes = add_identity ? identity_bytes : 0;
    for (const SaveItem& item : items) bytes += item.id ? 0 : item.bytes;
    return bytes + (add_hidden ? hidden_bytes : 0);
}

uint64_t SavePlan::fit(uint64_t limit, const std::string& place, SaveReport& report) {
    const uint32_t wanted = items.empty() ? 0 : items.back().end;
    uint64_t bytes = identity_bytes;
    size_t kept = 0;
    while (kept < items.size() && bytes + items[kept].bytes <= limit) bytes += items[kept++].bytes;
    const bool whole = kept == items.size();
    items.resize(kept);
    const bool hidden = (add_hidden || hidden_id) && whole && bytes + hidden_bytes <= limit;
    if (hidden) bytes += hidden_bytes;
    if (!hidden) {
        add_hidden = false;
        hidden_id.reset();
    }
    if (!whole) {
        report.notes.push_back(
            {LogLevel::info,
             format("the limit of %s for %s holds %u of %u positions", format_bytes(limit).c_str(),
                    place.c_str(), kept == 0 ? 0 : items.back().end, wanted)});
    }
    return bytes;
}

SavePlan make_plan(const Chains& chains, const SaveRequest& request, bool identity_there,
                   const Chains::Usable& intact) {
    const uint32_t n = static_cast<uint32_t>(chains.units().size());
    const auto usable = [&](uint32_t id) {
        return request.verified >= n || chains.header(id).end() <= request.verified || intact(id);
    };
    SavePlan plan;
    plan.add_identity = !identity_there;
    plan.identity_bytes = record_bytes(0, request.query.identity.size());
    bool lacking = false;
    for (uint32_t position = 0; position < n;) {
        for (const Step& step : chains.walk(position, usable)) {
            position = step.from + step.used;
            plan.items.push_back({step.id, 0, 0, chains.header(step.id).total_size(), position});
        }
        if (position == n) break;
        const uint32_t count = std::min(n - position, kPage - position % kPage);
        plan.items.push_back({std::nullopt, position, count,
                              record_bytes(count, count * request.query.position_bytes),
                              position + count});
        position += count;
        lacking = true;
    }
    if (!request.hidden.empty() && n == request.query.units.size()) {
        plan.hidden_bytes = record_bytes(0, request.hidden.size());
        plan.hidden_id = chains.hidden(n, intact);
        plan.add_hidden = !plan.hidden_id && (lacking || chains.longest(n) == n);
    }
    return plan;
}

Status check(const SaveRequest& request) {
    const Query& query = request.query;
    if (query.identity.empty() || query.identity.size() > kMaxIdentity ||
        query.position_bytes == 0 || query.position_bytes > (uint64_t{1} << 40) ||
        query.units.size() >= UINT32_MAX || !request.payload) {
        return Error{ErrorKind::invalid, "a save request without identity, sizes or payload"};
    }
    return {};
}

bool cancelled(const SaveRequest& request) {
    return request.cancel && request.cancel->load(std::memory_order_relaxed);
}

Error cannot_save(const Error& error) {
    return {error.kind, "cannot save the KV cache: " + error.text};
}

RecordHeader identity_header(std::string_view identity) {
    RecordHeader header;
    header.kind = RecordKind::identity;
    header.identity = header.parent = header.own = identity_key(identity);
    header.payload_size = identity.size();
    return header;
}

int write_identity(RecordWriter& writer, std::string_view identity) {
    return writer.write(identity_header(identity), [&](const RecordWriter::Sink& sink) {
        sink({reinterpret_cast<const uint8_t*>(identity.data()), identity.size()});
    });
}

RecordHeader piece_header(const Chains& chains, const SaveRequest& request, const SaveItem& item) {
    RecordHeader header;
    header.kind = RecordKind::pages;
    header.identity = chains.root();
    header.parent = chains.key(item.first);
    header.own = chains.key(item.end);
    header.first = item.first;
    header.n = item.n;
    header.payload_size = item.n * request.query.position_bytes;
    std::copy_n(chains.units().begin() + item.first, item.n, header.units.begin());
    return header;
}

int write_piece(RecordWriter& writer, const Chains& chains, const SaveRequest& request,
                const SaveItem& item) {
    return writer.write(piece_header(chains, request, item), [&](const RecordWriter::Sink& sink) {
        request.payload(item.first, item.n, sink);
    });
}

RecordHeader hidden_header(const Chains& chains, const SaveRequest& request) {
    RecordHeader header;
    header.kind = RecordKind::hidden;
    header.identity = chains.root();
    header.first = static_cast<uint32_t>(chains.units().size());
    header.parent = header.own = chains.key(header.first);
    header.payload_size = request.hidden.size();
    return header;
}

int write_hidden(RecordWriter& writer, const Chains& chains, const SaveRequest& request) {
    return writer.write(hidden_header(chains, request),
                        [&](const RecordWriter::Sink& sink) { sink(request.hidden); });
}

}  // namespace picolm::cache
