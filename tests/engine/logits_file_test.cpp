#include "engine/logits_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/hash.h"
#include "cache/memory_file_system.h"

namespace picolm {
namespace {

using testing::MemoryFileSystem;
using FileBytes = std::vector<uint8_t>;

constexpr const char* kPath = "saved.logits";
constexpr const char* kTemporary = "saved.logits.picolm-saving";

struct Saved {
    LogitsHeader header{.n_vocab = 40, .windows = {8, 8, 5, 2}, .bos = 1};
    std::vector<TokenId> tokens;
    std::vector<std::vector<float>> rows;  // one for each scored token
    std::vector<TokenId> right;
    MemoryFileSystem files;

    explicit Saved(float spread = 3) {
        std::mt19937 random(7);
        for (uint64_t i = 0; i < header.windows.n_tokens(); ++i)
            tokens.push_back(static_cast<TokenId>(random() % header.n_vocab));
        std::normal_distribution<float> normal(0, spread);
        for (uint64_t i = 0; i < header.windows.n_scored(); ++i) {
            rows.emplace_back(header.n_vocab);
            for (float& logit : rows.back()) logit = normal(random);
            right.push_back(static_cast<TokenId>(random() % header.n_vocab));
        }
    }
    std::unique_ptr<LogitsWriter> writer() {
        auto made = LogitsWriter::create(kPath, header, tokens, files);
        EXPECT_TRUE(made) << made.error().text;
        return made ? std::move(*made) : nullptr;
    }
    void write() {
        auto to = writer();
        for (size_t i = 0; i < rows.size(); ++i)
            ASSERT_TRUE(to->add(right[i], rows[i], log_softmax(rows[i])));
        ASSERT_TRUE(to->finish());
    }
    const FileBytes& bytes() { return *files.get(kPath); }
};

// The first error of opening and reading everything; ok: none.
Status read_all(const FileBytes& bytes) {
    MemoryFileSystem files;
    files.put(kPath, bytes);
    TRY(const auto reader, LogitsReader::open(kPath, files));
    for (uint64_t i = 0; i < reader->header().windows.n_scored(); ++i) TRY(reader->next());
    return {};
}

TEST(LogitsFile, WhatIsWrittenIsRead) {
    Saved saved;
    saved.write();
    EXPECT_EQ(saved.bytes().size(), saved.header.file_size());
    EXPECT_EQ(saved.files.get(kTemporary), nullptr);
    const auto reader = LogitsReader::open(kPath, saved.files);
    ASSERT_TRUE(reader) << reader.error().text;
    EXPECT_EQ((*reader)->header().windows, saved.header.windows);
    EXPECT_EQ((*reader)->header().n_vocab, 40u);
    EXPECT_EQ((*reader)->header().bos, 1u);
    EXPECT_EQ((*reader)->tokens(), saved.tokens);
    for (size_t i = 0; i < saved.rows.size(); ++i) {
        const Result<SavedLogits> got = (*reader)->next();
        ASSERT_TRUE(got) << got.error().text;
        const LogSoftmax want = log_softmax(saved.rows[i]);
        EXPECT_EQ(got->log_probability, want.of(saved.rows[i][saved.right[i]]));
        EXPECT_EQ(got->best, want.best);
        EXPECT_EQ(got->steps[want.best], 0);
    }
}

// The header of the format promises it.
TEST(LogitsFile, LogProbabilitiesAreKeptToTheStatedPrecision) {
    for (const float spread : {0.0f, 0.1f, 2.0f, 8.0f, 1000.0f}) {
        Saved saved(spread);
        saved.write();
        auto reader = std::move(*LogitsReader::open(kPath, saved.files));
        for (const std::vector<float>& row : saved.rows) {
            const Result<SavedLogits> got = reader->next();
            ASSERT_TRUE(got);
            for (size_t t = 0; t < row.size(); ++t) {
                const double below =
                    std::min(double{log_softmax(row).best_logit} - double{row[t]}, kSavedReach);
                const SavedStep& step = saved_steps()[got->steps[t]];
                EXPECT_NEAR(step.below, below, 8.7e-5 * std::sqrt(below) + 2e-9);
                EXPECT_NEAR(step.weight, std::exp(-step.below), 1e-15);
            }
        }
    }
}

TEST(LogitsFile, EveryDamagedByteIsNoticed) {
    Saved saved;
    saved.write();
    ASSERT_TRUE(read_all(saved.bytes()));
    for (size_t i = 0; i < saved.bytes().size(); ++i) {
        FileBytes bytes = saved.bytes();
        bytes[i] ^= 0x10;
        const Status status = read_all(bytes);
        ASSERT_FALSE(status) << i;
        // The first bytes say what kind of file it is.
        EXPECT_EQ(status.error().kind, i < 12 ? ErrorKind::unsupported : ErrorKind::corrupt) << i;
        EXPECT_NE(status.error().text.find(kPath), std::string::npos) << status.error().text;
    }
}

TEST(LogitsFile, ACutFileAndALongerOneAreNoticed) {
    Saved saved;
    saved.write();
    for (size_t size = 0; size < saved.bytes().size(); ++size) {
        FileBytes bytes = saved.bytes();
        bytes.resize(size);
        const Status status = read_all(bytes);
        ASSERT_FALSE(status) << size;
        EXPECT_EQ(status.error().kind, size < 8 ? ErrorKind::unsupported : ErrorKind::corrupt);
    }
    FileBytes bytes = saved.bytes();
    bytes.push_back(0);
    EXPECT_FALSE(read_all(bytes));
}

// Sizes far beyond the file, with a header whose checksum is right.
TEST(LogitsFile, AHeaderThatLiesIsRefusedBeforeAnythingIsAllocated) {
    Saved saved;
    saved.write();
    for (const size_t field : {12, 16, 20, 24, 28, 32, 36})
        for (const uint32_t value : {0u, 1u, 9u, 1u << 20, 1u << 28, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
            FileBytes bytes = saved.bytes();
            uint32_t old = 0;
            for (int i = 3; i >= 0; --i) old = old << 8 | bytes[field + static_cast<size_t>(i)];
            if (old == value) continue;
            for (size_t i = 0; i < 4; ++i)
                bytes[field + i] = static_cast<uint8_t>(value >> (8 * i));
            const uint64_t checksum = hash64(Bytes(bytes).first(48));
            for (size_t i = 0; i < 8; ++i)
                bytes[48 + i] = static_cast<uint8_t>(checksum >> (8 * i));
            // Another BOS is a possible one.
            const bool possible = field == 32 && (value < 40 || value == kNoBos);
            EXPECT_EQ(read_all(bytes).has_value(), possible) << field << ' ' << value;
        }
}

TEST(LogitsFile, AnythingElseIsForeign) {
    for (const char* text : {"", "GGUF", "_logits_", "PICOLOG",
                             "just a text that is long enough, "
                             "longer than any header of ours"}) {
        const Status status = read_all(FileBytes(text, text + strlen(text)));
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().kind, ErrorKind::unsupported);
        EXPECT_NE(status.error().text.find("not a file of saved logits"), std::string::npos);
    }
    MemoryFileSystem files;
    EXPECT_EQ(LogitsReader::open("missing", files).error().kind, ErrorKind::io);
}

TEST(LogitsFile, WhatIsNotFinishedLeavesNothingBehind) {
    Saved saved;
    {
        auto writer = saved.writer();
        EXPECT_NE(saved.files.get(kTemporary), nullptr);
        EXPECT_EQ(saved.files.get(kPath), nullptr);
    }
    EXPECT_EQ(saved.files.get(kTemporary), nullptr);
    EXPECT_EQ(saved.files.get(kPath), nullptr);
}

TEST(LogitsFile, OnlyItsOwnFilesAreReplaced) {
    Saved saved;
    saved.write();
    saved.write();
    EXPECT_TRUE(read_all(saved.bytes()));
    // What a process that was killed has left.
    saved.files.put(kTemporary, {saved.bytes().begin(), saved.bytes().begin() + 100});
    saved.write();
    EXPECT_TRUE(read_all(saved.bytes()));
    const FileBytes other = {'G', 'G', 'U', 'F', 3, 0, 0, 0, 1};
    saved.files.put(kTemporary, other);
    EXPECT_FALSE(LogitsWriter::create(kPath, saved.header, saved.tokens, saved.files));
    EXPECT_EQ(*saved.files.get(kTemporary), other);
    saved.files.put(kPath, other);
    const auto refused = LogitsWriter::create(kPath, saved.header, saved.tokens, saved.files);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().text.find("left alone"), std::string::npos);
    EXPECT_EQ(saved.bytes(), other);
}

}  // namespace
}  // namespace picolm
