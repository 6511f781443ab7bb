#include "cache/redis_payloads.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <set>

#include "base/format.h"

namespace picolm::cache {
namespace {

constexpr uint64_t kPortion = 8 << 20;  // bytes asked for in one round: the server buffers them
constexpr size_t kSmallReply = 64 << 10;

// nullptr: no memory.
std::shared_ptr<uint8_t> aligned_memory(size_t size) {
    constexpr std::align_val_t kAlign{kAlignment};
    auto* memory = static_cast<uint8_t*>(::operator new(size, kAlign, std::nothrow));
    if (memory == nullptr) return nullptr;
    return {memory, [](uint8_t* p) { ::operator delete(p, kAlign); }};
}

}  // namespace

void RedisPayloads::take(uint32_t id, const RedisReply& reply) {
    Read& read = read_[id];
    if (reply.is_text() && reply.text.empty()) return;  // the server has just dropped it
    const RecordHeader& h = index_.header(id);
    match_.bytes_read += h.payload_size;
    if (reply.is_text() && is_whole(h, reply.bytes())) {
        const Bytes payload = reply.bytes().subspan(static_cast<size_t>(h.head_size()),
                                                    static_cast<size_t>(h.payload_size));
        read.memory = aligned_memory(payload.size());
        if (!read.memory) return;
        std::memcpy(read.memory.get(), payload.data(), payload.size());
        read.payload = {read.memory.get(), payload.size()};
        return;
    }
    ++match_.n_damaged;
    const std::string what = printable(index_.key(id), 300) + " in " + connection_.place();
    match_.notes.push_back(
        {LogLevel::warning, h.n == 0
                                ? what + " is damaged: a saved hidden state is not used"
                                : format("%s is damaged: saved positions %u to %u are not used",
                                         what.c_str(), h.first, h.end() - 1)});
}

void RedisPayloads::fetch(std::span<const uint32_t> ids, uint64_t largest) {
    // A byte more than there should be, and never all of something larger.
    for (const uint32_t id : ids)
        connection_.add(
            {"GETRANGE", index_.key(id), "0", std::to_string(index_.header(id).total_size())});
    const auto limit = static_cast<size_t>(std::min<uint64_t>(largest, SIZE_MAX / 2));
    size_t i = 0;
    status_ = connection_.read(limit + kSmallReply,
                               [&](const RedisReply& reply) { take(ids[i++], reply); });
}

bool RedisPayloads::verify(std::span<const uint32_t> ids) {
    std::vector<uint32_t> portion;
    std::set<uint32_t> asked;
    uint64_t bytes = 0, largest = 0;
    const auto flush = [&] {
        if (status_ && !portion.empty()) fetch(portion, largest);
        portion.clear();
        bytes = largest = 0;
    };
    for (const uint32_t id : ids) {
        if (read_.contains(id) || !asked.insert(id).second) continue;
        const uint64_t size = index_.header(id).total_size();
        portion.push_back(id);
        largest = std::max(largest, size);
        bytes += std::min(size, kPortion);
        if (bytes >= kPortion) flush();
    }
    flush();
    return std::none_of(ids.begin(), ids.end(), [&](uint32_t id) { return failed(id); });
}

bool RedisPayloads::failed(uint32_t id) const {
    const auto found = read_.find(id);
    return found == read_.end() ? !status_ : found->second.payload.empty();
}

std::shared_ptr<const void> RedisPayloads::hold() const {
    auto all = std::make_shared<std::vector<std::shared_ptr<const uint8_t>>>();
    for (const auto& [id, read] : read_)
        if (read.memory) all->push_back(read.memory);
    return all;
}

}  // namespace picolm::cache
