// The single-file store as its users see it: matching, saving only what is new, identities, limits
// on positions, modes and links. Names begin with the case they stand for (CASES E).
#include "cache/file_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "cache_support.h"

namespace picolm::testing {
namespace {

using cache::FileStore;
using cache::Match;
using cache::SaveOutcome;
using cache::SaveReport;

class FileStoreTest : public ::testing::Test {
  protected:
    TempDir dir_;
    std::string path_ = dir_.file("prompt.kvc");
    FaultyFileSystem files_;
    FileStore store_{path_, {.files = &files_}};
    FakeModel model_;

    SaveReport must_save(const Units& units, uint32_t verified = 0) {
        auto report = save(store_, model_, units, verified);
        EXPECT_TRUE(report) << report.error().text;
        return report ? *report : SaveReport{};
    }
};

TEST_F(FileStoreTest, AnAbsentFileIsASilentMiss) {
    const Match match = store_.load(model_.query(random_units(10, 1)));
    EXPECT_EQ(match.matched, 0u);
    EXPECT_TRUE(match.notes.empty());
    EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(FileStoreTest, SaveThenLoad) {
    const Units units = random_units(150, 1);
    const SaveReport report = must_save(units);
    EXPECT_EQ(report.outcome, SaveOutcome::appended);
    EXPECT_EQ(report.positions_new, 150u);
    EXPECT_EQ(report.positions_total, 150u);
    EXPECT_EQ(report.bytes_written, std::filesystem::file_size(path_));
    const Match match = store_.load(model_.query(units));
    expect_right(match, model_, units);
    EXPECT_EQ(match.matched, 150u);
    EXPECT_EQ(match.segments.size(), 3u);
    EXPECT_FALSE(match.hidden.empty());
    EXPECT_TRUE(match.notes.empty()) << all_notes(match.notes);
}

// A file of somebody else's at the temporary name is neither removed nor overwritten.
TEST_F(FileStoreTest, ForeignFileAtTheTemporaryNameStays) {
    const std::string other = path_ + ".picolm-rewriting";
    write_text(other, "GGUF, say: not a rewrite of ours");
    must_save(random_units(150, 1));
    EXPECT_EQ(read_text(other), "GGUF, say: not a rewrite of ours");
    FileStore small(path_, {.limit_bytes = std::filesystem::file_size(path_) + 1000});
    EXPECT_FALSE(save(small, model_, random_units(150, 2), 0));  // needs a rewrite
    EXPECT_EQ(read_text(other), "GGUF, say: not a rewrite of ours");
    std::filesystem::remove(other);
    write_text(other, "");  // what a killed rewrite may leave
    EXPECT_TRUE(save(small, model_, random_units(150, 2), 0));
    EXPECT_FALSE(std::filesystem::exists(other));
}

TEST_F(FileStoreTest, PayloadsAreAligned) {
    model_.position_bytes = 34 * 3;  // blocks of 34 bytes
    model_.hidden_bytes = 20;
    const Units units = random_units(150, 1);
    must_save(units);
    const Match match = store_.load(model_.query(units));
    expect_right(match, model_, units);
    ASSERT_EQ(match.segments.size(), 3u);
    for (const auto& s : match.segments) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(s.payload.data()) % 64, 0u);
    }
}

TEST_F(FileStoreTest, FindReadsNoPayload) {
    const Units units = random_units(150, 1);
    must_save(units);
    const Match match = store_.find(model_.query(units));
    EXPECT_EQ(match.matched, 150u);
    ASSERT_EQ(match.segments.size(), 3u);
    EXPECT_TRUE(match.segments[0].payload.empty());
}

TEST_F(FileStoreTest, E1OtherPromptsReuseTheCommonPrefix) {
    const Units saved = random_units(100, 1);
    must_save(saved);
    Units shares_60 = saved;
    shares_60[60] += 1;
    const Units longer = joined(saved, random_units(30, 2));
    const Units shorter(saved.begin(), saved.begin() + 70);
    const Units other = random_units(50, 9);
    struct Case {
        const Units& units;
        uint32_t matched;
        uint32_t saved_positions;
    };
    for (const Case& c : {Case{shares_60, 60, 100}, Case{longer, 100, 100}, Case{shorter, 70, 100},
                          Case{other, 0, 100}, Case{saved, 100, 100}}) {
        const Match match = store_.load(model_.query(c.units));
        expect_right(match, model_, c.units);
        EXPECT_EQ(match.matched, c.matched);
        EXPECT_EQ(match.saved_positions, c.saved_positions);
        EXPECT_EQ(match.hidden.empty(), c.units != saved);
        EXPECT_TRUE(match.notes.empty()) << all_notes(match.notes);
    }
}

TEST_F(FileStoreTest, E10EverythingBeforeAChangedUnitIsReusedAndTheRestAdded) {
    const Units base = random_units(90, 1);
    must_save(base);
    for (uint32_t clock = 0; clock < 5; ++clock) {
        Units units = base;
        units[70] = 40000 + clock;
        EXPECT_EQ(load_right(store_, model_, units), 70u);
        const SaveReport report = must_save(units, 70);
        EXPECT_EQ(report.positions_new, 20u);
        EXPECT_EQ(load_right(store_, model_, units), 90u);
    }
    EXPECT_EQ(load_right(store_, model_, base), 90u);
}

// The longest prefix shared with any saved prompt, found by comparing with every one of them.
TEST_F(FileStoreTest, MatchesEqualExhaustiveSearch) {
    model_.position_bytes = 8;
    model_.hidden_bytes = 8;
    std::mt19937 random(7);
    for (int round = 0; round < 12; ++round) {
        std::filesystem::remove(path_);
        std::vector<Units> saved;
        for (int i = 0; i < 40; ++i) {
            Units units;
            if (!saved.empty() && random() % 4 != 0) {
                units = saved[random() % saved.size()];
                units.resize(random() % (units.size() + 1));
            }
            const Units tail = random_units(1 + random() % 90, static_cast<uint32_t>(random()), 2);
            units = joined(units, tail);
            if (units.size() > 300) units.resize(300);
            uint32_t matched = 0;
            uint32_t longest = 0;
            for (const Units& other : saved) {
                const uint32_t common = static_cast<uint32_t>(
                    std::mismatch(units.begin(), units.end(), other.begin(), other.end()).first -
                    units.begin());
                if (common > matched) longest = 0;
                matched = std::max(matched, common);
                if (common == matched) {
                    longest = std::max(longest, static_cast<uint32_t>(other.size()));
                }
            }
            const Match match = store_.load(model_.query(units));
            expect_right(match, model_, units);
            ASSERT_EQ(match.matched, matched);
            ASSERT_EQ(match.saved_positions, longest);
            const SaveReport report = must_save(units, match.matched);
            ASSERT_EQ(report.positions_new, units.size() - matched);
            saved.push_back(units);
        }
    }
}

TEST_F(FileStoreTest, TwoIdentitiesShareAFile) {
    FakeModel other;
    other.identity = "format=1;model=other;rope=10000";
    other.position_bytes = 128;
    const Units units = random_units(80, 1);
    must_save(units);

    const Match miss = store_.load(other.query(units));
    EXPECT_EQ(miss.matched, 0u);
    ASSERT_EQ(miss.notes.size(), 1u);
    EXPECT_NE(miss.notes[0].text.find("(model: fake there, other here)"), std::string::npos)
        << miss.notes[0].text;

    ASSERT_TRUE(save(store_, other, units));
    EXPECT_EQ(load_right(store_, other, units), 80u);
    EXPECT_EQ(load_right(store_, model_, units), 80u);
    EXPECT_EQ(must_save(units, 80).outcome, SaveOutcome::nothing_new);
}

TEST_F(FileStoreTest, E4OtherSettingsAreRejectedWithTheReason) {
    const Units units = random_units(80, 1);
    must_save(units);
    model_.identity = "format=1;model=fake;rope=500000";
    const Match match = store_.load(model_.query(units));
    EXPECT_EQ(match.matched, 0u);
    EXPECT_NE(all_notes(match.notes).find("rope: 10000 there, 500000 here"), std::string::npos);
}

TEST_F(FileStoreTest, ARecordOfAnotherSizeThanTheIdentityImpliesIsNotUsed) {
    const Units units = random_units(80, 1);
    must_save(units);
    model_.position_bytes = 64;
    model_.hidden_bytes = 64;
    EXPECT_EQ(store_.load(model_.query(units)).matched, 0u);
}

TEST_F(FileStoreTest, E7NothingIsWrittenWhenNothingIsNew) {
    const Units units = random_units(130, 1);
    must_save(units);
    struct stat before;
    ASSERT_EQ(stat(path_.c_str(), &before), 0);
    files_.writes = 0;
    for (int run = 0; run < 100; ++run) {
        EXPECT_EQ(load_right(store_, model_, units), 130u);
        const SaveReport report = must_save(units, 130);
        EXPECT_EQ(report.outcome, SaveOutcome::nothing_new);
        EXPECT_EQ(report.bytes_written, 0u);
        EXPECT_EQ(report.positions_total, 130u);
    }
    EXPECT_EQ(files_.writes, 0u);
    struct stat after;
    ASSERT_EQ(stat(path_.c_str(), &after), 0);
    EXPECT_EQ(before.st_mtim.tv_sec, after.st_mtim.tv_sec);
    EXPECT_EQ(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec);
    EXPECT_EQ(before.st_ino, after.st_ino);
}

TEST_F(FileStoreTest, E7APrefixOfTheSavedPromptWritesNothing) {
    const Units units = random_units(130, 1);
    must_save(units);
    files_.writes = 0;
    for (const size_t n : {1u, 63u, 64u, 65u, 100u, 128u, 129u}) {
        const Units prefix(units.begin(), units.begin() + n);
        EXPECT_EQ(load_right(store_, model_, prefix), n);
        EXPECT_EQ(must_save(prefix, static_cast<uint32_t>(n)).outcome, SaveOutcome::nothing_new);
    }
    EXPECT_EQ(files_.writes, 0u);
}

TEST_F(FileStoreTest, AMissingHiddenStateIsAddedLater) {
    const Units units = random_units(30, 1);
    cache::SaveRequest request;
    request.query = model_.query(units);
    request.payload = [&](uint32_t first, uint32_t n, const cache::Sink& sink) {
        sink(model_.payload(units, first, n));
    };
    ASSERT_TRUE(store_.save(request));
    EXPECT_TRUE(store_.load(model_.query(units)).hidden.empty());
    EXPECT_EQ(must_save(units, 30).positions_new, 0u);
    EXPECT_FALSE(store_.load(model_.query(units)).hidden.empty());
}

TEST_F(FileStoreTest, E8ANewFileIsPrivate) {
    const mode_t old = umask(0);
    must_save(random_units(10, 1));
    umask(old);
    struct stat info;
    ASSERT_EQ(stat(path_.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0600u);
}

TEST_F(FileStoreTest, E8ASymlinkIsNotFollowed) {
    const std::string target = dir_.file("target");
    {
        FileStore direct(target);
        ASSERT_TRUE(save(direct, model_, random_units(10, 1)));
    }
    const std::string before = read_text(target);
    for (const std::string& to : {target, dir_.file("nowhere")}) {
        std::filesystem::create_symlink(to, path_);
        const Match match = store_.load(model_.query(random_units(10, 1)));
        EXPECT_EQ(match.matched, 0u);
        EXPECT_NE(all_notes(match.notes).find("symbolic link"), std::string::npos);
        const auto report = save(store_, model_, random_units(20, 2));
        ASSERT_FALSE(report);
        EXPECT_EQ(report.error().kind, ErrorKind::invalid);
        EXPECT_TRUE(std::filesystem::is_symlink(path_));
        EXPECT_EQ(read_text(target), before);
        EXPECT_FALSE(std::filesystem::exists(dir_.file("nowhere")));
        std::filesystem::remove(path_);
    }
}

TEST_F(FileStoreTest, E9PositionsBeyondTheContextAreNotLoadedOrSaved) {
    const Units units = random_units(150, 1);
    must_save(units);
    cache::Query query = model_.query(units);
    query.max_positions = 100;
    const Match match = store_.load(query);
    expect_right(match, model_, units);
    EXPECT_EQ(match.matched, 100u);
    EXPECT_EQ(match.saved_positions, 150u);
    EXPECT_TRUE(match.hidden.empty());

    const Units other = random_units(150, 2);
    const auto report = save(store_, model_, other, 0, 100);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->positions_new, 100u);
    EXPECT_EQ(load_right(store_, model_, other), 100u);
}

TEST_F(FileStoreTest, CancellingKeepsWhatIsComplete) {
    const Units units = random_units(300, 1);
    std::atomic<bool> cancel = false;
    cache::SaveRequest request;
    request.query = model_.query(units);
    request.cancel = &cancel;
    request.payload = [&](uint32_t first, uint32_t n, const cache::Sink& sink) {
        cancel = first == 64;
        sink(model_.payload(units, first, n));
    };
    const auto report = store_.save(request);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->outcome, SaveOutcome::cancelled);
    EXPECT_EQ(report->positions_new, 128u);
    EXPECT_EQ(report->positions_total, 128u);
    EXPECT_EQ(load_right(store_, model_, units), 128u);
}

TEST_F(FileStoreTest, AWriterThatDoesNotGetTheLockSkipsSaving) {
    must_save(random_units(10, 1));
    std::unique_ptr<File> holder;
    ASSERT_EQ(posix_file_system().open(path_, FileSystem::Mode::read_write, holder), 0);
    ASSERT_EQ(holder->try_lock(), 0);
    const std::string before = read_text(path_);
    const auto report = save(store_, model_, random_units(20, 2));
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().kind, ErrorKind::busy);
    EXPECT_EQ(read_text(path_), before);
    // Reading, and a save with nothing new, need no lock.
    EXPECT_EQ(load_right(store_, model_, random_units(10, 1)), 10u);
    EXPECT_EQ(must_save(random_units(10, 1), 10).outcome, SaveOutcome::nothing_new);
}

TEST_F(FileStoreTest, APayloadOfTheWrongSizeIsRefused) {
    const Units units = random_units(30, 1);
    cache::SaveRequest request;
    request.query = model_.query(units);
    request.payload = [&](uint32_t, uint32_t, const cache::Sink& sink) {
        sink(model_.payload(units, 0, 3));
    };
    EXPECT_FALSE(store_.save(request));
    EXPECT_EQ(load_right(store_, model_, units), 0u);
    request.query.identity = "";
    EXPECT_FALSE(store_.save(request));
}

TEST_F(FileStoreTest, ListShowsEveryRecord) {
    must_save(random_units(100, 1));
    const auto list = store_.list();
    ASSERT_EQ(list.size(), 4u);
    EXPECT_EQ(list[0].header.kind, cache::RecordKind::identity);
    EXPECT_EQ(list[2].header.first, 64u);
    EXPECT_EQ(list[2].header.n, 36u);
    EXPECT_EQ(list[3].header.kind, cache::RecordKind::hidden);
    uint64_t bytes = 0;
    for (const auto& info : list) {
        EXPECT_EQ(info.identity, model_.identity);
        bytes += info.bytes();
    }
    EXPECT_EQ(bytes, std::filesystem::file_size(path_));
}

TEST_F(FileStoreTest, SizeOfA25PositionFileOfTinyLlamaShape) {
    model_.identity = std::string(400, 'x') + "=1";
    model_.position_bytes = 2 * 22 * 256 * 2;
    model_.hidden_bytes = 2048 * 4;
    must_save(random_units(25, 1));
    const uint64_t size = std::filesystem::file_size(path_);
    RecordProperty("bytes", static_cast<int>(size));
    EXPECT_GT(size, 563200u);
    EXPECT_LE(size, 563200u * 105 / 100);
}

}  // namespace
}  // namespace picolm::testing
