#include "engine/logits_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/math.h"
#include "model/spec.h"

namespace picolm {
namespace {

constexpr char kMagic[] = "PICOLOGP";
constexpr uint32_t kVersion = 1;
constexpr size_t kHead = 56;
constexpr size_t kChecked = 48;     // bytes of the header in front of its checksum
constexpr size_t kRecordHead = 24;  // of a record, in front of its steps
constexpr double kLastStep = 65535;
constexpr size_t kTokensAtOnce = 16384;

void put(uint8_t* out, uint64_t value, size_t n) {
    for (size_t i = 0; i < n; ++i) out[i] = static_cast<uint8_t>(value >> (8 * i));
}

size_t record_size(uint32_t n_vocab) {
    return kRecordHead + size_t{2} * n_vocab;
}

std::vector<uint8_t> encode_tokens(std::span<const TokenId> tokens) {
    std::vector<uint8_t> bytes(tokens.size() * 4);
    for (size_t i = 0; i < tokens.size(); ++i) put(&bytes[4 * i], tokens[i], 4);
    return bytes;
}

std::vector<uint8_t> encode_header(const LogitsHeader& h, uint64_t token_checksum) {
    std::vector<uint8_t> bytes(kHead);
    std::memcpy(bytes.data(), kMagic, 8);
    const uint32_t fields[] = {
        kVersion,        h.n_vocab,           h.windows.n_ctx, h.windows.step,
        h.windows.first, h.windows.n_windows, h.bos,           0};
    for (size_t i = 0; i < std::size(fields); ++i) put(&bytes[8 + 4 * i], fields[i], 4);
    put(&bytes[40], token_checksum, 8);
    put(&bytes[kChecked], hash64(Bytes(bytes).first(kChecked)), 8);
    return bytes;
}

bool is_ours(Bytes head) {
    return head.size() >= 8 && std::memcmp(head.data(), kMagic, 8) == 0;
}

Error damaged(const std::string& path, const std::string& how) {
    return {ErrorKind::corrupt, path + " is damaged: " + how};
}

// Whether it is a file that begins as one of ours, or with nothing yet.
bool may_replace(FileSystem& files, const std::string& path) {
    std::unique_ptr<File> file;
    FileInfo info;
    uint8_t head[8];
    if (files.open(path, FileSystem::Mode::read, file) != 0) return false;
    if (file->info(info) != 0 || info.kind != FileKind::regular) return false;
    const int64_t n = read_fully(*file, head, sizeof head, 0);
    return n == 0 || (n == sizeof head && is_ours(head));
}

}  // namespace

uint64_t LogitsHeader::file_size() const {
    return kHead + 4 * windows.n_tokens() + windows.n_scored() * record_size(n_vocab);
}

std::span<const SavedStep> saved_steps() {
    static const std::vector<SavedStep> table = [] {
        std::vector<SavedStep> steps(65536);
        for (size_t q = 0; q < steps.size(); ++q) {
            const double share = static_cast<double>(q) / kLastStep;
            steps[q].below = kSavedReach * (share * share);
            steps[q].weight = exp_f64(-steps[q].below);
        }
        return steps;
    }();
    return table;
}

// ---- writing

LogitsWriter::LogitsWriter(FileSystem& files, std::string path, const LogitsHeader& header)
    : files_(files),
      path_(std::move(path)),
      temporary_(path_ + ".picolm-saving"),
      header_(header),
      record_(record_size(header.n_vocab)) {}

LogitsWriter::~LogitsWriter() {
    if (file_) files_.remove(temporary_);
}

Result<std::unique_ptr<LogitsWriter>> LogitsWriter::create(const std::string& path,
                                                           const LogitsHeader& header,
                                                           std::span<const TokenId> tokens,
                                                           FileSystem& files) {
    FileInfo there;
    if (files.info(path, there) == 0 && !may_replace(files, path))
        return Error{ErrorKind::invalid, path + " is not a file of saved logits; it is left alone"};
    std::unique_ptr<LogitsWriter> writer(new LogitsWriter(files, path, header));
    TRY(writer->open_temporary());
    const std::vector<uint8_t> bytes = encode_tokens(tokens);
    TRY(writer->write(encode_header(header, hash64(bytes))));
    TRY(writer->write(bytes));
    return writer;
}

// What a process that was killed has left is replaced; who still writes holds the lock.
Status LogitsWriter::open_temporary() {
    std::unique_ptr<File> file;
    int error = files_.open(temporary_, FileSystem::Mode::create, file);
    if (error == -EEXIST) {
        const Error busy{ErrorKind::busy, path_ + " is being written by another process"};
        std::unique_ptr<File> old;
        FileInfo opened, named;
        if (!may_replace(files_, temporary_))
            return Error{ErrorKind::invalid, temporary_ + " is in the way; it is left alone"};
        error = files_.open(temporary_, FileSystem::Mode::read_write, old);
        if (error) return file_error("open", temporary_, error);
        if (old->try_lock() != 0 || old->info(opened) != 0 || files_.info(temporary_, named) != 0 ||
            opened.device != named.device || opened.inode != named.inode)
            return busy;
        files_.remove(temporary_);
        error = files_.open(temporary_, FileSystem::Mode::create, file);
    }
    if (error) return file_error("create", temporary_, error);
    // A file system without locks only misses the message above.
    (void)file->try_lock();
    file_ = std::move(file);
    return {};
}

Status LogitsWriter::write(const std::vector<uint8_t>& bytes) {
    if (const int error = write_fully(*file_, bytes.data(), bytes.size(), end_))
        return file_error("write", temporary_, error);
    end_ += bytes.size();
    return {};
}

Status LogitsWriter::add(TokenId token, std::span<const float> logits, const LogSoftmax& softmax) {
    const double log_probability = softmax.of(logits[token]);
    uint64_t bits;
    std::memcpy(&bits, &log_probability, sizeof bits);
    put(&record_[8], bits, 8);
    put(&record_[16], softmax.best, 4);
    const double scale = kLastStep / std::sqrt(kSavedReach);
    uint8_t* out = &record_[kRecordHead];
    for (const float logit : logits) {
        const double below = std::min(double{softmax.best_logit} - double{logit}, kSavedReach);
        put(out, static_cast<uint32_t>(std::sqrt(below) * scale + 0.5), 2);
        out += 2;
    }
    put(record_.data(), hash64(Bytes(record_).subspan(8)), 8);
    return write(record_);
}

Status LogitsWriter::finish() {
    int error = file_->sync();
    if (error) return file_error("write", temporary_, error);
    error = files_.rename(temporary_, path_);
    if (error) return file_error("replace", path_, error);
    file_.reset();
    error = files_.sync_folder_of(path_);
    if (error) return file_error("write the folder of", path_, error);
    return {};
}

// ---- reading

Status LogitsReader::read(void* out, size_t n, uint64_t offset) {
    const int64_t got = read_fully(*file_, out, n, offset);
    if (got < 0) return file_error("read", path_, static_cast<int>(got));
    if (static_cast<size_t>(got) < n) return damaged(path_, "it was cut short while in use");
    return {};
}

Result<std::unique_ptr<LogitsReader>> LogitsReader::open(const std::string& path,
                                                         FileSystem& files) {
    std::unique_ptr<LogitsReader> reader(new LogitsReader);
    reader->path_ = path;
    if (const int error = files.open(path, FileSystem::Mode::read, reader->file_))
        return file_error("open", path, error);
    FileInfo info;
    if (const int error = reader->file_->info(info)) return file_error("read", path, error);
    if (info.kind != FileKind::regular)
        return Error{ErrorKind::io, "cannot read " + path + ": not a regular file"};
    TRY(const uint64_t token_checksum, reader->read_header(info.size));
    TRY(reader->read_tokens(token_checksum));
    reader->record_.resize(record_size(reader->header_.n_vocab));
    reader->steps_.resize(reader->header_.n_vocab);
    return reader;
}

Result<uint64_t> LogitsReader::read_header(uint64_t file_size) {
    uint8_t head[kHead] = {};
    const int64_t n_head = read_fully(*file_, head, kHead, 0);
    if (n_head < 0) return file_error("read", path_, static_cast<int>(n_head));
    if (!is_ours(Bytes(head, static_cast<size_t>(n_head))))
        return Error{ErrorKind::unsupported,
                     path_ + " is not a file of saved logits (picolm perplexity --save-logits)"};
    if (static_cast<size_t>(n_head) < kHead) return damaged(path_, "it is cut off");
    ByteReader in(Bytes(head, kHead));
    in.take(8);
    const uint32_t version = in.u32();
    if (version != kVersion)
        return Error{ErrorKind::unsupported,
                     format("%s has version %u of the format; this program knows version %u",
                            path_.c_str(), version, kVersion)};
    LogitsHeader& h = header_;
    Windows& w = h.windows;
    for (uint32_t* field : {&h.n_vocab, &w.n_ctx, &w.step, &w.first, &w.n_windows, &h.bos})
        *field = in.u32();
    const uint32_t zero = in.u32();
    const uint64_t token_checksum = in.u64(), checksum = in.u64();
    if (checksum != hash64(Bytes(head, kChecked))) return damaged(path_, "its header is wrong");
    // With these caps no product below overflows; that of the records is formed last.
    if (h.n_vocab == 0 || h.n_vocab > 1u << 28 || w.n_ctx < 2 || w.n_ctx > kMaxContext ||
        w.step == 0 || w.step > w.n_ctx || w.first == 0 || w.first >= w.n_ctx || w.n_windows == 0 ||
        zero != 0 || (h.bos != kNoBos && h.bos >= h.n_vocab))
        return damaged(path_, "its header makes no sense");
    if (file_size < kHead || (file_size - kHead) / 4 < w.n_tokens() ||
        (file_size - kHead - 4 * w.n_tokens()) / record_size(h.n_vocab) < w.n_scored())
        return damaged(path_, "it is cut off");
    if (file_size != h.file_size()) return damaged(path_, "it goes on behind its end");
    return token_checksum;
}

Status LogitsReader::read_tokens(uint64_t expected) {
    Hasher hasher;
    std::vector<uint8_t> bytes;
    const uint64_t n = header_.windows.n_tokens();  // the file is that long
    tokens_.reserve(static_cast<size_t>(n));
    at_ = kHead;
    while (tokens_.size() < n) {
        bytes.resize(4 *
                     static_cast<size_t>(std::min<uint64_t>(n - tokens_.size(), kTokensAtOnce)));
        TRY(read(bytes.data(), bytes.size(), at_));
        hasher.update(bytes);
        for (ByteReader in{Bytes(bytes)}; in.remaining() > 0;) tokens_.push_back(in.u32());
        at_ += bytes.size();
    }
    if (hasher.digest64() != expected) return damaged(path_, "its tokens are wrong");
    return {};
}

Result<SavedLogits> LogitsReader::next() {
    TRY(read(record_.data(), record_.size(), at_));
    ByteReader in{Bytes(record_)};
    const uint64_t checksum = in.u64();
    SavedLogits saved;
    saved.log_probability = in.f64();
    saved.best = in.u32();
    const uint32_t zero = in.u32();
    if (checksum != hash64(Bytes(record_).subspan(8)) || zero != 0 ||
        saved.best >= header_.n_vocab || !(saved.log_probability <= 0) ||
        !std::isfinite(saved.log_probability))
        return damaged(path_, format("the record at byte %llu is wrong",
                                     static_cast<unsigned long long>(at_)));
    const uint8_t* from = &record_[kRecordHead];
    for (size_t i = 0; i < steps_.size(); ++i)
        steps_[i] = static_cast<uint16_t>(from[2 * i] | from[2 * i + 1] << 8);
    at_ += record_.size();
    saved.steps = steps_;
    return saved;
}

}  // namespace picolm
