#include <algorithm>
#include <cerrno>

#include "base/hash.h"
#include "cache/record_log.h"

namespace picolm::cache {
namespace {

constexpr size_t kBuffer = 64 << 10;

}  // namespace

void RecordWriter::flush() {
    const size_t n = buffer_.size() - held_back_;
    if (!error_ && n > 0) {
        error_ = write_fully(file_, buffer_.data() + held_back_, n, flushed_to_);
        if (!error_) bytes_written_ += n;
    }
    flushed_to_ += n;
    buffer_.resize(held_back_);
}

void RecordWriter::take(Bytes bytes) {
    while (!bytes.empty() && !error_) {
        const size_t n = std::min(bytes.size(), kBuffer - (buffer_.size() - held_back_));
        buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
        bytes = bytes.subspan(n);
        if (!bytes.empty()) flush();
    }
}

int RecordWriter::write(RecordHeader header, const std::function<void(const Sink&)>& payload,
                        std::optional<uint64_t> expected) {
    const uint64_t payload_offset = end_ + header.head_size();
    held_back_ = static_cast<size_t>(header.head_size());
    flushed_to_ = payload_offset;
    error_ = 0;
    buffer_.reserve(held_back_ + kBuffer + kAlignment);
    buffer_.assign(held_back_, 0);

    Hasher hasher;
    uint64_t size = 0;
    payload([&](Bytes bytes) {
        size += bytes.size();
        hasher.update(bytes);
        take(bytes);
    });
    if (error_) return error_;
    if (size != header.payload_size) return -EINVAL;
    header.data_checksum = hasher.digest64();
    if (expected && header.data_checksum != *expected) return -EILSEQ;

    const size_t padding = static_cast<size_t>(align_up(size) - size);
    buffer_.insert(buffer_.end(), padding, 0);
    const std::vector<uint8_t> head = encode_header(header);
    if (flushed_to_ != payload_offset) flush();
    // What is left is the header, and the payload too if it is small.
    std::copy(head.begin(), head.end(), buffer_.begin());
    held_back_ = 0;
    flushed_to_ = end_;
    flush();
    if (!error_) end_ += header.total_size();
    return error_;
}

}  // namespace picolm::cache
