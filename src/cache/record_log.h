// A file as a sequence of records: finds them front to back, past damage, and writes new ones. Owns
// no policy: which records are used, kept or dropped is decided elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "cache/record.h"

namespace picolm::cache {

struct LogEntry {
    RecordHeader header;
    uint64_t offset = 0;  // of the header in the file
    uint64_t payload_offset() const { return offset + header.head_size(); }
};

struct RecordLog {
    std::vector<LogEntry> entries;   // in file order: oldest first; headers valid, payloads unread
    HeadKind head = HeadKind::ours;  // ours as well when the file is empty or any record is valid
    uint32_t second_word = 0;        // version, or the position count of an original file
    uint64_t file_size = 0;
    uint64_t valid_end = 0;      // end of the last valid record
    uint64_t damaged_bytes = 0;  // before valid_end, in no valid record
};

// Reads headers only, and through read_at, so that a file that shrinks meanwhile is a short read
// and no SIGBUS. Bytes that are no record are searched for the next one in steps of 64; where a
// file does not begin with a valid record the first is looked for within 1 MiB.
Result<RecordLog> scan_log(File& file, const std::string& path);

// Hands out the payload in pieces; false when it cannot be read whole.
bool read_payload(File& file, const LogEntry& entry, const std::function<void(Bytes)>& sink);

// Whether the payload can be read and has its checksum.
bool payload_intact(File& file, const LogEntry& entry);

// The string of an identity record; nullopt when it is damaged.
std::optional<std::string> read_identity(File& file, const LogEntry& entry);

// Writes records one behind the other. A record counts only when its header is there, so a large
// payload goes first and its header last; a small record is one write.
class RecordWriter {
  public:
    using Sink = std::function<void(Bytes)>;

    // REQUIRES: offset % kAlignment == 0; `file` outlives this.
    RecordWriter(File& file, uint64_t offset) : file_(file), end_(offset) {}

    // Takes everything but the data checksum from `header`; `payload` must hand over exactly
    // header.payload_size bytes. 0, or a negative errno; -EINVAL for a wrong number of bytes,
    // -EILSEQ when `expected` is given and is not the checksum. After an error end() is what it
    // was.
    int write(RecordHeader header, const std::function<void(const Sink&)>& payload,
              std::optional<uint64_t> expected = std::nullopt);

    uint64_t end() const { return end_; }  // of the last complete record
    uint64_t bytes_written() const { return bytes_written_; }

  private:
    void take(Bytes bytes);
    void flush();

    File& file_;
    uint64_t end_;
    uint64_t bytes_written_ = 0;
    // Of the record being written:
    std::vector<uint8_t> buffer_;
    size_t held_back_ = 0;     // bytes of buffer_ that are the header's place
    uint64_t flushed_to_ = 0;  // file offset of buffer_[held_back_]
    int error_ = 0;
};

}  // namespace picolm::cache
