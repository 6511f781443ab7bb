// The records of a server as a walk down a chain needs them: for a whole prompt their headers come
// in a few rounds, each of many commands.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/record_index.h"
#include "cache/redis_connection.h"
#include "cache/redis_keys.h"
#include "cache/store.h"

namespace picolm::cache {

class RedisIndex : public RecordIndex {
  public:
    // Of the records behind one key so many are looked at, the newest; beside them those that the
    // prompt has as they are.
    static constexpr size_t kSiblings = 64;
    // Keys beyond the prompt that are asked for one by one: they only tell how much further a
    // saved text goes on.
    static constexpr uint32_t kLookups = 16;

    RedisIndex(RedisConnection& connection, const RedisKeys& names)
        : connection_(connection), names_(names) {}

    // Reads the identity record and what lies behind keys[p] = K_p for every p from the start of
    // the page of position `first` on. Without `all` it ends behind a page that has no records:
    // what comes later cannot be reached.
    Status read(std::span<const Key128> keys, uint32_t first, bool all);

    // The string of the identity record; nullopt: absent or damaged (then it is in damaged()).
    const std::optional<std::string>& identity() const { return identity_; }

    std::vector<uint32_t> pages_behind(const Key128& parent, std::span<const Key128>) override;
    std::vector<uint32_t> hidden_at(const Key128& own) override;
    const RecordHeader& header(uint32_t id) const override { return headers_[id]; }
    bool in_memory() const override { return false; }

    std::string key(uint32_t id) const { return names_.key_of(headers_[id]); }
    const std::vector<std::string>& damaged() const { return damaged_; }  // keys
    // Sets that are something else, and names in sets without a record.
    const std::vector<std::string>& wrong_sets() const { return wrong_sets_; }
    const std::vector<RecordName>& vanished() const { return vanished_; }

  private:
    using Lists = std::vector<std::vector<Key128>>;
    // identity_of: the root whose identity record is read with them, or nullptr.
    Status read_lists(std::span<const Key128> parents, const Key128* identity_of, Lists& lists);
    void take_identity(const Key128& key, const RedisReply& reply);
    Status read_headers(const std::vector<RecordName>& records);
    void take_header(const RecordName& record, const RedisReply& reply);
    Error refused(const RedisReply& reply) const;

    RedisConnection& connection_;
    const RedisKeys& names_;
    std::optional<std::string> identity_;
    std::vector<RecordHeader> headers_;
    std::map<Key128, std::vector<uint32_t>> pages_;  // by parent, what was asked for
    std::map<Key128, uint32_t> hidden_;              // by own
    std::vector<std::string> damaged_;
    std::vector<std::string> wrong_sets_;
    std::vector<RecordName> vanished_;
    uint32_t n_lookups_ = 0;
};

}  // namespace picolm::cache
