// The four verbs of a prompt cache: find, load, save, trim. A store maps (identity, units) to saved
// attention state of the longest known prefix of the units. It knows no models and no tokens: units
// are numbers, payloads are bytes, geometry is part of the identity string.
//
// Anything odd is a miss with a note, never an error and never a wrong answer. Implementations:
// FileStore (file_store.h), DirectoryStore (directory_store.h), RedisStore (redis_store.h), and
// TieredStore (tiered_store.h), which is two of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/log.h"
#include "base/result.h"
#include "cache/record.h"

namespace picolm::cache {

// A sentence for the user.
struct Note {
    LogLevel level;
    std::string text;
};

struct Query {
    std::string_view identity;            // "key=value;key=value", at most kMaxIdentity bytes
    std::span<const uint32_t> units;      // [n] the whole prompt
    uint32_t max_positions = UINT32_MAX;  // positions from here on are not wanted (-c)
    // Records of other payload sizes than n * position_bytes (or hidden_bytes) are not used. The
    // identity implies both; a file is not believed all the same. 0: any size.
    uint64_t position_bytes = 0;
    uint64_t hidden_bytes = 0;
    // Positions before this are at hand: of a match only what lies behind them is looked for. A
    // save pays no heed to it.
    uint32_t first = 0;
};

// Part of a record: positions [from, from + used) of a record that holds [first, first + n).
struct Segment {
    uint32_t first = 0;
    uint32_t n = 0;     // 1..64, inside one page; the payload's layout depends on (first, n)
    uint32_t from = 0;  // first <= from
    uint32_t used = 0;  // > 0, from + used <= first + n
    Bytes payload;      // of the whole record, 64-byte aligned in the file; empty after find()
};

struct Match {
    // Units [first, matched) of the query are saved, compared one by one; 0: none of them.
    uint32_t matched = 0;
    // Length of the longest saved chain that shares those units. Where it is more than `matched`,
    // the prompt parts from it (or ends) there.
    uint32_t saved_positions = 0;
    std::vector<Segment> segments;  // cover [first, matched) in order, without gap or overlap
    // The hidden state behind the last unit; empty unless every unit matched and it was saved.
    Bytes hidden;
    uint64_t bytes_read = 0;           // payloads that were verified
    uint32_t n_damaged = 0;            // records that were left out
    bool incomplete = false;           // one of several stores lacks what save() would add
    std::vector<Note> notes;           // in the order they should be shown
    std::shared_ptr<const void> hold;  // keeps every payload alive, also after the file is replaced
};

// Takes payload bytes piece by piece, in order.
using Sink = std::function<void(Bytes)>;

struct SaveRequest {
    Query query;  // max_positions also bounds what is saved
    // Positions that load() handed to this caller: their records are known to be undamaged.
    uint32_t verified = 0;
    // Gives the payload of a record [first, first + n), which lies inside one page and inside the
    // units, as exactly n * position_bytes bytes. Asked for what is new; also for positions that
    // were loaded, if their records have vanished from the store since. Called from the thread that
    // calls save(), and never after it has returned. REQUIRES: position_bytes > 0.
    std::function<void(uint32_t first, uint32_t n, const Sink& sink)> payload;
    Bytes hidden;                               // hidden_bytes bytes, or empty: none is saved
    const std::atomic<bool>* cancel = nullptr;  // looked at between records
};

enum class SaveOutcome {
    nothing_new,  // no byte was written
    appended,
    rewritten,   // the file was written anew: limit reached, or more dead bytes than live ones
    over_limit,  // nothing new fits under the limit; no byte was written
    cancelled,   // some records may have been added
};

struct SaveReport {
    SaveOutcome outcome = SaveOutcome::nothing_new;
    uint32_t positions_new = 0;    // newly written
    uint32_t positions_total = 0;  // of this prompt that are in the store now
    uint64_t bytes_written = 0;    // to the medium, headers and copies of old records included
    uint32_t n_evicted = 0;        // records dropped to make room
    std::vector<Note> notes;
};

// A record as it lies in a store.
struct RecordInfo {
    RecordHeader header;
    std::string identity;  // "" when the store has lost it
    int64_t used_ns = 0;   // when it was last saved or used, since 1970; 0: not known
    uint64_t n_uses = 0;   // how often a prompt ended in it, as far as that is known
    // Hands out the payload; false when it cannot be read whole. Not checked against its checksum.
    std::function<bool(const Sink&)> read;

    uint64_t bytes() const { return header.total_size(); }
};

// Names a record: (parent, own).
using RecordName = std::pair<Key128, Key128>;

struct VerifyReport {
    uint32_t n_records = 0;  // that are as they should be
    uint64_t bytes = 0;      // of those
    uint32_t n_damaged = 0;
    uint32_t n_removed = 0;
    std::vector<std::string> damaged;  // what and where, for people
};

class Store {
  public:
    virtual ~Store() = default;

    // The longest match by headers alone: no payload is read, so none is handed out or vouched for.
    virtual Match find(const Query& query) = 0;

    // The same with payloads, each checked against its checksum; damaged ones are left out of the
    // match.
    virtual Match load(const Query& query) = 0;

    // Adds what the store lacks of the first min(n, max_positions) units. The hidden state is added
    // when nothing longer is saved, so a prompt that is a prefix of a saved one writes nothing.
    // Meant for a thread of its own. Errors: io ("cannot save the KV cache: ..."), busy (another
    // process is saving), invalid (the path is not a cache and is left alone); what was there
    // before is intact after each of them.
    virtual Result<SaveReport> save(const SaveRequest& request) = 0;

    // Drops the least recently saved chains until the store is at most limit_bytes large.
    virtual Result<SaveReport> trim(uint64_t limit_bytes) = 0;

    // Every readable record; those that were saved or used longest ago come first.
    virtual std::vector<RecordInfo> list() = 0;

    // Reads everything. `repair`: drops what is damaged, and what hangs on it or on nothing.
    virtual Result<VerifyReport> verify(bool repair) = 0;
    // Drops these records and what hangs on them; how many that were.
    virtual Result<uint32_t> remove(const std::set<RecordName>& records) = 0;
    // Copies records of another store, in an order in which nothing comes before its parent. What
    // is here already is not written; what is damaged there is an error.
    virtual Result<SaveReport> add(std::span<const RecordInfo> records) = 0;
};

}  // namespace picolm::cache
