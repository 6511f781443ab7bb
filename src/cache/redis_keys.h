// What lies where in a Redis server, for one prefix P. Keys are 32 hexadecimal digits.
//
//   P i:<K_0>            the identity record of each model and setting
//   P r:<parent>:<own>   a record, byte for byte as a file of a cache folder; a hidden state has
//                        parent = own
//   P c:<parent>         a sorted set: own keys of the pages behind `parent`, by the time of saving
//
// The set is what makes branches inside a page findable. A record that it does not name is not
// found, and saved again; a name without its record (dropped by the server) is passed over.
#pragma once

#include <string>
#include <string_view>

#include "cache/directory.h"

namespace picolm::cache {

struct RedisKeys {
    std::string prefix;

    std::string identity(const Key128& key) const { return prefix + "i:" + key.hex(); }
    std::string record(const Key128& parent, const Key128& own) const {
        return prefix + "r:" + parent.hex() + ":" + own.hex();
    }
    std::string children(const Key128& parent) const { return prefix + "c:" + parent.hex(); }
    std::string key_of(const RecordHeader& h) const {
        return h.kind == RecordKind::identity ? identity(h.own) : record(h.parent, h.own);
    }
};

// GETRANGE to here is all of an identity record, and not much more of whatever is in its place.
inline constexpr std::string_view kIdentityEnd = "20000";
static_assert(kMaxHead + kMaxIdentity < 20000);

// The record, if these bytes are one, whole or at least its header, and it belongs to this key.
std::optional<RecordHeader> header_under(const RedisKeys& keys, const std::string& key,
                                         Bytes bytes);
// Whether these bytes are all of that record, with the payload that its checksum promises.
bool is_whole(const RecordHeader& header, Bytes record);

}  // namespace picolm::cache
