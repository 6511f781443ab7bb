// Case E3: damaged, foreign and impossible files. The right answer is a correct match or a miss
// with a warning, a later save that repairs what it may, and nothing else touched.
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>

#include "cache_support.h"

namespace picolm::testing {
namespace {

using cache::FileStore;
using cache::Match;

class DamageTest : public ::testing::Test {
  protected:
    TempDir dir_;
    std::string path_ = dir_.file("prompt.kvc");
    FaultyFileSystem calm_;  // never told to fail
    FileStore store_{path_, {.files = &calm_}};
    FakeModel model_;
    Units units_ = random_units(150, 1);
    std::string good_;

    void SetUp() override { make_good(64); }
    void make_good(uint64_t position_bytes) {
        std::filesystem::remove(path_);
        model_.position_bytes = position_bytes;
        ASSERT_TRUE(save(store_, model_, units_));
        good_ = read_text(path_);
    }

    // A match of a damaged file is right; a save afterwards makes it whole again.
    void expect_recovery(const std::string& what) {
        SCOPED_TRACE(what);
        const Match match = store_.load(model_.query(units_));
        expect_right(match, model_, units_);
        if (match.matched < 150) {
            EXPECT_TRUE(warned(match) || read_text(path_).empty() || boundary_);
        }
        const auto report = save(store_, model_, units_, match.matched);
        ASSERT_TRUE(report) << report.error().text;
        EXPECT_EQ(report->positions_total, 150u);
        EXPECT_EQ(load_right(store_, model_, units_), 150u);
        EXPECT_FALSE(store_.load(model_.query(units_)).hidden.empty());
    }
    bool boundary_ = false;  // cut between two records: nothing can be seen to be missing
};

TEST_F(DamageTest, E3CutAtEvery4KiB) {
    make_good(640);
    for (size_t n = 0; n < good_.size(); n += 4096) {
        write_text(path_, good_.substr(0, n));
        expect_recovery("cut at " + std::to_string(n));
    }
}

TEST_F(DamageTest, E3CutAtEvery64BytesAndBeside) {
    for (size_t n = 0; n < good_.size(); n += 64) {
        for (const size_t cut : {n + 1, n + 63, n + 64}) {
            if (cut >= good_.size()) continue;
            write_text(path_, good_.substr(0, cut));
            boundary_ = true;
            // Fewer than 8 bytes do not say whose they are.
            if (cut < 8) continue;
            expect_recovery("cut at " + std::to_string(cut));
        }
    }
}

TEST_F(DamageTest, E3EveryHeaderByteFlipped) {
    size_t offset = 0;
    for (const auto& record : store_.list()) {
        const size_t head = cache::kFixedHead + 4 * record.header.n;
        for (size_t i = 0; i < head; ++i) {
            std::string bad = good_;
            bad[offset + i] = static_cast<char>(bad[offset + i] ^ (1 << i % 8));
            write_text(path_, bad);
            const Match match = store_.load(model_.query(units_));
            EXPECT_TRUE(warned(match));
            EXPECT_TRUE(match.matched < 150 || match.hidden.empty());
            expect_recovery("offset " + std::to_string(offset + i));
        }
        offset += static_cast<size_t>(record.bytes());
    }
}

TEST_F(DamageTest, E3DataBytesFlipped) {
    for (size_t i = 0; i < good_.size(); i += 31) {
        std::string bad = good_;
        bad[i] = static_cast<char>(bad[i] ^ 0x10);
        write_text(path_, bad);
        expect_recovery("offset " + std::to_string(i));
    }
}

TEST_F(DamageTest, E3AnythingAtAllWrittenOver) {
    std::mt19937 random(3);
    for (int round = 0; round < 400; ++round) {
        std::string bad = good_;
        const size_t at = random() % bad.size();
        const size_t n = std::min<size_t>(bad.size() - at, 1 + random() % 5000);
        for (size_t i = 0; i < n; ++i) bad[at + i] = round % 2 ? '\0' : static_cast<char>(random());
        write_text(path_, bad);
        const Match match = store_.load(model_.query(units_));
        expect_right(match, model_, units_);
        // When the beginning is gone and no record is left, the file is not known to be ours.
        if (!save(store_, model_, units_, match.matched)) continue;
        EXPECT_EQ(load_right(store_, model_, units_), 150u);
    }
}

TEST_F(DamageTest, E3RecordsBehindADamagedOneAreKept) {
    std::string bad = good_;
    bad[static_cast<size_t>(store_.list()[0].bytes())] ^= 1;  // the header of the first page
    write_text(path_, bad);
    EXPECT_EQ(load_right(store_, model_, units_), 0u);
    const auto report = save(store_, model_, units_, 0);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->positions_new, 64u);
    EXPECT_EQ(load_right(store_, model_, units_), 150u);
}

TEST_F(DamageTest, E3ALostIdentityRecordIsAddedAgain) {
    std::string bad = good_;
    bad[20] ^= 1;
    write_text(path_, bad);
    const Match match = store_.load(model_.query(units_));
    EXPECT_EQ(match.matched, 0u);
    EXPECT_NE(all_notes(match.notes).find("is lost"), std::string::npos);
    const auto report = save(store_, model_, units_, 0);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->positions_new, 0u);
    EXPECT_EQ(load_right(store_, model_, units_), 150u);
}

TEST_F(DamageTest, E3ANewerVersionIsLeftAlone) {
    std::string newer = good_;
    for (size_t i = 0; i + 8 <= newer.size(); i += 64) {
        if (newer.compare(i, 4, "PCVK") == 0) newer[i + 4] = 2;
    }
    write_text(path_, newer);
    const Match match = store_.load(model_.query(units_));
    EXPECT_EQ(match.matched, 0u);
    EXPECT_NE(all_notes(match.notes).find("another version"), std::string::npos);
    const auto report = save(store_, model_, units_);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().kind, ErrorKind::invalid);
    EXPECT_EQ(read_text(path_), newer);
}

TEST_F(DamageTest, E3AFileThatIsNoCacheIsLeftAlone) {
    for (const std::string& text : {std::string("GGUF model, given by mistake"), std::string("x"),
                                    std::string(3 << 20, '\0'), std::string("PCV")}) {
        write_text(path_, text);
        const Match match = store_.load(model_.query(units_));
        EXPECT_EQ(match.matched, 0u);
        EXPECT_NE(all_notes(match.notes).find("is not a KV cache"), std::string::npos);
        EXPECT_FALSE(save(store_, model_, units_));
        EXPECT_FALSE(store_.trim(0));
        EXPECT_EQ(read_text(path_), text);
    }
}

TEST_F(DamageTest, TheOriginalFormatIsRefusedWithTheReasonAndReplacedBySaving) {
    for (const uint32_t positions : {25u, 0x7FFFFFFFu}) {
        std::string original(16 + 1000, '\x11');
        const uint32_t words[4] = {0x4B564350, positions, 22, 256};
        std::memcpy(original.data(), words, 16);
        write_text(path_, original);
        const Match match = store_.load(model_.query(units_));
        EXPECT_EQ(match.matched, 0u);
        EXPECT_NE(all_notes(match.notes).find("does not say which prompt"), std::string::npos);
        EXPECT_EQ(read_text(path_), original);  // looking changes nothing
        const auto report = save(store_, model_, units_);
        ASSERT_TRUE(report);
        EXPECT_EQ(report->outcome, cache::SaveOutcome::rewritten);
        EXPECT_NE(all_notes(report->notes).find("has been replaced"), std::string::npos);
        EXPECT_EQ(load_right(store_, model_, units_), 150u);
        EXPECT_EQ(read_text(path_).substr(0, 8), std::string("PCVK\x01\0\0\x80", 8));
    }
}

TEST_F(DamageTest, E3APositionCountOf2To31IsNotOfTheOriginalFormat) {
    std::string odd(16 + 1000, '\x11');
    const uint32_t words[4] = {0x4B564350, 0x80000000, 22, 256};
    std::memcpy(odd.data(), words, 16);
    write_text(path_, odd);
    const Match match = store_.load(model_.query(units_));
    EXPECT_EQ(match.matched, 0u);
    EXPECT_TRUE(warned(match));
    EXPECT_FALSE(save(store_, model_, units_));
    EXPECT_EQ(read_text(path_), odd);
}

TEST_F(DamageTest, E3ADirectoryIsLeftAlone) {
    std::filesystem::remove(path_);
    std::filesystem::create_directory(path_);
    EXPECT_TRUE(warned(store_.load(model_.query(units_))));
    const auto report = save(store_, model_, units_);
    ASSERT_FALSE(report);
    EXPECT_NE(report.error().text.find("a directory"), std::string::npos);
    EXPECT_TRUE(std::filesystem::is_directory(path_));
}

TEST_F(DamageTest, E3DevicesAndPipesAreNeverReplaced) {
    const std::string pipe = dir_.file("pipe");
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    for (const std::string& path : {std::string("/dev/full"), std::string("/dev/null"), pipe}) {
        struct stat before;
        ASSERT_EQ(stat(path.c_str(), &before), 0);
        FileStore store(path);
        const Match match = store.load(model_.query(units_));
        EXPECT_EQ(match.matched, 0u);
        EXPECT_TRUE(warned(match));
        const auto report = save(store, model_, units_);
        ASSERT_FALSE(report);
        EXPECT_NE(report.error().text.find("a device or pipe"), std::string::npos);
        EXPECT_FALSE(store.trim(0));
        struct stat after;
        ASSERT_EQ(stat(path.c_str(), &after), 0);
        EXPECT_EQ(before.st_mode, after.st_mode);
        EXPECT_EQ(before.st_rdev, after.st_rdev);
        EXPECT_EQ(before.st_ino, after.st_ino);
    }
}

TEST_F(DamageTest, E3AFullDiskIsNeverSaved) {
    FaultyFileSystem full;
    full.all_writes_fail = true;
    full.with_errno = ENOSPC;
    for (const auto fault : {FaultyFileSystem::Fault::error, FaultyFileSystem::Fault::half_fail}) {
        full.fault = fault;
        FileStore store(path_, {.files = &full});
        const Units other = random_units(200, 5);
        const auto report = save(store, model_, other);
        ASSERT_FALSE(report);
        EXPECT_EQ(report.error().kind, ErrorKind::io);
        EXPECT_NE(report.error().text.find("cannot save the KV cache"), std::string::npos);
        EXPECT_NE(report.error().text.find("No space left"), std::string::npos);
        EXPECT_EQ(load_right(store_, model_, units_), 150u);
        EXPECT_EQ(load_right(store_, model_, other), 0u);
    }
}

TEST_F(DamageTest, E3AReadOnlyFolderIsAWarning) {
    FaultyFileSystem read_only;
    read_only.all_writes_fail = true;
    read_only.with_errno = EROFS;
    FileStore store(dir_.file("new.kvc"), {.files = &read_only});
    const auto report = save(store, model_, units_);
    ASSERT_FALSE(report);
    EXPECT_NE(report.error().text.find("Read-only file system"), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(dir_.file("new.kvc")));
    FileStore nowhere(dir_.file("no/such/folder.kvc"));
    EXPECT_TRUE(nowhere.load(model_.query(units_)).notes.empty());
    EXPECT_FALSE(save(nowhere, model_, units_));
}

}  // namespace
}  // namespace picolm::testing
