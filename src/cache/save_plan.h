// What a store holds and lacks of a prompt that is to be saved, cut to a limit, and the records
// that are missing. The same for every store; where records go is the store's business.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/chains.h"
#include "cache/record_log.h"

namespace picolm::cache {

// A stretch of the prompt: in the store, or to be written.
struct SaveItem {
    std::optional<uint32_t> id;
    uint32_t first = 0;  // of a piece to be written
    uint32_t n = 0;
    uint64_t bytes = 0;
    uint32_t end = 0;  // positions of the prompt behind it
};

struct SavePlan {
    std::vector<SaveItem> items;  // front to back
    std::optional<uint32_t> hidden_id;
    bool add_hidden = false;
    bool add_identity = false;
    uint64_t identity_bytes = 0;
    uint64_t hidden_bytes = 0;

    bool complete() const;
    uint64_t new_bytes() const;

    // Cuts the plan where the limit is reached, with a note that names `place`, and says how many
    // bytes the whole prompt takes then.
    uint64_t fit(uint64_t limit, const std::string& place, SaveReport& report);
};

// `intact`: whether the payload of a record has its checksum; it is not asked for those that the
// request calls verified.
SavePlan make_plan(const Chains& chains, const SaveRequest& request, bool identity_there,
                   const Chains::Usable& intact);

Status check(const SaveRequest& request);
bool cancelled(const SaveRequest& request);
Error cannot_save(const Error& error);

// The records themselves. 0, or the errno of RecordWriter::write.
RecordHeader identity_header(std::string_view identity);
int write_identity(RecordWriter& writer, std::string_view identity);
RecordHeader piece_header(const Chains& chains, const SaveRequest& request, const SaveItem& item);
int write_piece(RecordWriter& writer, const Chains& chains, const SaveRequest& request,
                const SaveItem& item);
RecordHeader hidden_header(const Chains& chains, const SaveRequest& request);
int write_hidden(RecordWriter& writer, const Chains& chains, const SaveRequest& request);

}  // namespace picolm::cache
