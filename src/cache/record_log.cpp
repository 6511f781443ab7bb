#include "cache/record_log.h"

#include <algorithm>
#include <cerrno>

#include "base/hash.h"

namespace picolm::cache {
namespace {

constexpr size_t kChunk = 64 << 10;
constexpr uint64_t kFirstRecordWithin = 1 << 20;

// A moving window over the file. Headers are far apart, so it reads little at a time unless asked.
class Window {
  public:
    explicit Window(File& file) : file_(file) {}

    // Up to kMaxHead bytes at `offset`; fewer, or none, at the end of the file or after an error.
    Bytes at(uint64_t offset, size_t read_ahead) {
        const bool inside = offset >= start_ && offset + kMaxHead <= start_ + size_;
        if (!inside) {
            buffer_.resize(std::max<size_t>(read_ahead, kMaxHead));
            const int64_t got = read_fully(file_, buffer_.data(), buffer_.size(), offset);
            if (got < 0) error_ = static_cast<int>(got);
            start_ = offset;
            size_ = got < 0 ? 0 : static_cast<size_t>(got);
        }
        const size_t skip = static_cast<size_t>(offset - start_);
        return Bytes(buffer_).subspan(skip, std::min<size_t>(size_ - skip, kMaxHead));
    }
    int error() const { return error_; }

  private:
    File& file_;
    std::vector<uint8_t> buffer_;
    uint64_t start_ = 0;
    size_t size_ = 0;
    int error_ = 0;
};

}  // namespace

Result<RecordLog> scan_log(File& file, const std::string& path) {
    FileInfo info;
    if (const int error = file.info(info)) return file_error("examine", path, error);
    RecordLog log;
    log.file_size = info.size;
    Window window(file);
    if (info.size > 0) {
        const Bytes start = window.at(0, kMaxHead);
        log.head = classify_head(start);
        ByteReader words(start);
        words.u32();
        log.second_word = words.u32();
    }
    bool searching = false;
    for (uint64_t offset = 0; offset < info.size && !window.error();) {
        if (log.entries.empty() && offset >= kFirstRecordWithin) break;
        const auto header = parse_header(window.at(offset, searching ? kChunk : kMaxHead));
        searching = !header;
        if (!header) {
            offset += kAlignment;
            continue;
        }
        // A record that the file ends in was cut, and nothing follows it.
        if (header->total_size() > info.size - offset) break;
        log.damaged_bytes += offset - log.valid_end;
        log.entries.push_back({*header, offset});
        offset += header->total_size();
        log.valid_end = offset;
    }
    if (window.error()) return file_error("read", path, window.error());
    if (!log.entries.empty()) log.head = HeadKind::ours;
    return log;
}

bool read_payload(File& file, const LogEntry& entry, const std::function<void(Bytes)>& sink) {
    std::vector<uint8_t> buffer(
        static_cast<size_t>(std::min<uint64_t>(kChunk, entry.header.payload_size)));
    for (uint64_t done = 0; done < entry.header.payload_size;) {
        const size_t n = static_cast<size_t>(
            std::min<uint64_t>(buffer.size(), entry.header.payload_size - done));
        const int64_t got = read_fully(file, buffer.data(), n, entry.payload_offset() + done);
        if (got != static_cast<int64_t>(n)) return false;
        sink({buffer.data(), n});
        done += n;
    }
    return true;
}

bool payload_intact(File& file, const LogEntry& entry) {
    Hasher hasher;
    const bool complete = read_payload(file, entry, [&](Bytes bytes) { hasher.update(bytes); });
    return complete && hasher.digest64() == entry.header.data_checksum;
}

std::optional<std::string> read_identity(File& file, const LogEntry& entry) {
    std::string text;
    const bool complete = read_payload(file, entry, [&](Bytes bytes) {
        text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    });
    if (!complete || identity_key(text) != entry.header.identity) return std::nullopt;
    return text;
}

}  // namespace picolm::cache
