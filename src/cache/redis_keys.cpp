#include "cache/redis_keys.h"

#include <algorithm>

namespace picolm::cache {

std::optional<RecordHeader> header_under(const RedisKeys& keys, const std::string& key,
                                         Bytes bytes) {
    std::optional<RecordHeader> header = parse_header(bytes);
    if (header && keys.key_of(*header) != key) header.reset();
    return header;
}

bool is_whole(const RecordHeader& header, Bytes record) {
    if (record.size() != header.total_size()) return false;
    const std::vector<uint8_t> head = encode_header(header);
    if (!std::equal(head.begin(), head.end(), record.begin())) return false;
    return hash64(record.subspan(head.size(), static_cast<size_t>(header.payload_size))) ==
           header.data_checksum;
}

}  // namespace picolm::cache
