// What one run of a model says about every scored token of a text, kept for a later run of another
// model (another quantisation of it) to be compared with. One file, written and read from front to
// back, one position at a time: it is far larger than memory (2 bytes for each token of the
// vocabulary and position).
//
//   offset  size  field (little-endian)
//        0     8  magic "PICOLOGP"
//        8     4  version 1
//       12     4  n_vocab
//       16     4  n_ctx         how the text was cut, see windows.h
//       20     4  step
//       24     4  first
//       28     4  n_windows
//       32     4  the token put at the start of each window; 0xFFFFFFFF: none
//       36     4  zero
//       40     8  XXH3-64 of the tokens
//       48     8  XXH3-64 of the 48 bytes before
//       56   4*t  tokens of the text, t = n_ctx + (n_windows - 1) * step
//
// and for each scored token, in order:
//
//        0     8  XXH3-64 of the rest of this record
//        8     8  log-probability of the token that is there (binary64)
//       16     4  the likeliest token
//       20     4  zero
//       24  2*n_vocab  for each token how far it lies below the likeliest, as a step q of 16 bits:
//                      ln p(best) - ln p = (q * sqrt(32) / 65535)^2
//
// The steps follow the square root, so that the likely tokens, on which a divergence hangs, are
// kept best: to 0.00003 at 0.1 below the likeliest one, 0.00009 at 1, 0.0005 at 32; what lies
// further below counts as 32. (Even steps of 16 bits, as llama.cpp has them, are off by up to
// 0.00018 everywhere.) The reader divides by the sum, so that what was rounded is a probability
// distribution again: no divergence is below 0. Each record has a checksum of its own, because
// nobody reads gigabytes twice. Rejected: half floats, whose steps are coarser from 0.1 on; logits
// as they are, since adding a constant to all of them changes nothing.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "decode/log_softmax.h"
#include "engine/windows.h"

namespace picolm {

inline constexpr uint32_t kNoBos = UINT32_MAX;

struct LogitsHeader {
    uint32_t n_vocab = 0;
    Windows windows;
    TokenId bos = kNoBos;

    // Bytes of the whole file.
    uint64_t file_size() const;
};

class LogitsWriter {
  public:
    // Writes beside `path` until finish(). `tokens`: windows.n_tokens() of them. io: the system's
    // reason; invalid: something else is at `path`, which is left alone; busy: another process
    // writes this file.
    static Result<std::unique_ptr<LogitsWriter>> create(const std::string& path,
                                                        const LogitsHeader& header,
                                                        std::span<const TokenId> tokens,
                                                        FileSystem& files = posix_file_system());
    ~LogitsWriter();  // without finish(): nothing is left behind
    LogitsWriter(const LogitsWriter&) = delete;
    LogitsWriter& operator=(const LogitsWriter&) = delete;

    // The next scored token and the logits in front of it: [n_vocab].
    Status add(TokenId token, std::span<const float> logits, const LogSoftmax& softmax);
    // Everything reaches the medium, then the file gets its name. REQUIRES: all were added.
    Status finish();

  private:
    LogitsWriter(FileSystem& files, std::string path, const LogitsHeader& header);
    Status open_temporary();
    Status write(const std::vector<uint8_t>& bytes);

    FileSystem& files_;
    std::string path_, temporary_;
    LogitsHeader header_;
    std::unique_ptr<File> file_;
    uint64_t end_ = 0;
    std::vector<uint8_t> record_;
};

// One position as it was saved.
struct SavedLogits {
    double log_probability = 0;  // of the token that is there
    TokenId best = 0;
    std::span<const uint16_t> steps;  // [n_vocab], until the next one is read
};

class LogitsReader {
  public:
    // Reads header and tokens. io; unsupported: not such a file, or a newer version; corrupt: it is
    // damaged or cut off.
    static Result<std::unique_ptr<LogitsReader>> open(const std::string& path,
                                                      FileSystem& files = posix_file_system());

    const LogitsHeader& header() const { return header_; }
    const std::vector<TokenId>& tokens() const { return tokens_; }
    // REQUIRES: not more often than windows.n_scored(). corrupt: the record is damaged.
    Result<SavedLogits> next();

  private:
    LogitsReader() = default;
    // Checks everything that the header says; the checksum of the tokens.
    Result<uint64_t> read_header(uint64_t file_size);
    Status read_tokens(uint64_t expected);
    Status read(void* out, size_t n, uint64_t offset);

    std::string path_;
    std::unique_ptr<File> file_;
    LogitsHeader header_;
    std::vector<TokenId> tokens_;
    uint64_t at_ = 0;
    std::vector<uint8_t> record_;
    std::vector<uint16_t> steps_;
};

// What a step stands for.
struct SavedStep {
    double below;   // ln p(best) - ln p
    double weight;  // exp(-below)
};
inline constexpr double kSavedReach = 32;
// [65536]
std::span<const SavedStep> saved_steps();

}  // namespace picolm
