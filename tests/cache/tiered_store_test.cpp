// A store in front of another one: what is near is not fetched, what was fetched is near
// afterwards.
#include "cache/tiered_store.h"

#include <filesystem>

#include "cache/directory_store.h"
#include "cache_support.h"

namespace picolm::testing {
namespace {

namespace fs = std::filesystem;
using cache::DirectoryStore;
using cache::Match;
using cache::TieredStore;

class TieredStoreTest : public ::testing::Test {
  protected:
    TempDir dir_{memory_folder()};
    FakeModel model_;
    Units units_ = random_units(200, 1);

    std::unique_ptr<cache::Store> folder(const std::string& name, FileSystem* files = nullptr) {
        return std::make_unique<DirectoryStore>(
            dir_.file(name),
            cache::DirectoryStoreOptions{.limit_bytes = 1 << 30, .files = files ? files : &calm_});
    }
    TieredStore tiered() { return TieredStore(folder("near"), folder("far")); }
    // What a session does: the match, and what is new or is missing in one of the two.
    Match turn(TieredStore& store, const Units& units) {
        Match match = store.load(model_.query(units));
        expect_right(match, model_, units);
        if (match.incomplete || match.matched < units.size()) {
            EXPECT_TRUE(save(store, model_, units, match.matched));
        }
        return match;
    }
    static uint64_t payloads(const Match& match) {
        uint64_t n = 0;
        for (const cache::Segment& s : match.segments) n += s.used;
        return n;
    }
    FaultyFileSystem calm_;
};

TEST_F(TieredStoreTest, SavesToBothAndReadsTheNearOne) {
    TieredStore store = tiered();
    EXPECT_EQ(turn(store, units_).matched, 0u);
    EXPECT_EQ(load_right(*folder("near"), model_, units_), 200u);
    EXPECT_EQ(load_right(*folder("far"), model_, units_), 200u);
    fs::remove_all(dir_.file("far"));
    const Match match = turn(store, units_);
    EXPECT_EQ(match.matched, 200u);
    EXPECT_FALSE(match.hidden.empty());
    EXPECT_FALSE(match.incomplete);
    EXPECT_FALSE(fs::exists(dir_.file("far")));  // not even asked
}

TEST_F(TieredStoreTest, WhatIsFarIsNearAfterwards) {
    ASSERT_TRUE(save(*folder("far"), model_, units_));
    TieredStore store = tiered();
    const Match match = turn(store, units_);
    EXPECT_EQ(match.matched, 200u);
    EXPECT_FALSE(match.hidden.empty());
    EXPECT_TRUE(match.incomplete);
    const Match near = folder("near")->load(model_.query(units_));
    expect_right(near, model_, units_);
    EXPECT_EQ(near.matched, 200u);
    EXPECT_FALSE(near.hidden.empty());
}

// The near one has the beginning; it ends inside a page and at the end of one.
TEST_F(TieredStoreTest, OnlyWhatIsMissingIsFetched) {
    ASSERT_TRUE(save(*folder("far"), model_, units_));
    for (const uint32_t n : {64u, 100u, 128u, 199u}) {
        fs::remove_all(dir_.file("near"));
        const Units beginning(units_.begin(), units_.begin() + n);
        ASSERT_TRUE(save(*folder("near"), model_, beginning));
        cache::Query rest = model_.query(units_);
        rest.first = n;
        const Match far = folder("far")->load(rest);
        EXPECT_EQ(far.matched, 200u);
        EXPECT_EQ(payloads(far), 200u - n);
        TieredStore store = tiered();
        const Match match = turn(store, units_);
        EXPECT_EQ(match.matched, 200u);
        EXPECT_EQ(payloads(match), 200u);
        EXPECT_FALSE(match.hidden.empty());
        EXPECT_EQ(load_right(*folder("near"), model_, units_), 200u);
    }
}

TEST_F(TieredStoreTest, FindAnswersWithoutPayloads) {
    ASSERT_TRUE(save(*folder("far"), model_, units_));
    const Units beginning(units_.begin(), units_.begin() + 70);
    ASSERT_TRUE(save(*folder("near"), model_, beginning));
    const Match match = tiered().find(model_.query(units_));
    EXPECT_EQ(match.matched, 200u);
    EXPECT_EQ(match.saved_positions, 200u);
    for (const cache::Segment& s : match.segments) EXPECT_TRUE(s.payload.empty());
}

TEST_F(TieredStoreTest, AQueryBehindAPositionWorksThroughBoth) {
    const Units beginning(units_.begin(), units_.begin() + 70);
    ASSERT_TRUE(save(*folder("near"), model_, beginning));
    ASSERT_TRUE(save(*folder("far"), model_, units_));
    for (const uint32_t first : {10u, 70u, 90u, 200u}) {
        cache::Query query = model_.query(units_);
        query.first = first;
        const Match match = tiered().load(query);
        EXPECT_EQ(match.matched, first < 200 ? 200u : 0u);
        uint32_t position = first;
        for (const cache::Segment& s : match.segments) {
            EXPECT_EQ(s.from, position);
            position += s.used;
        }
        EXPECT_EQ(position, 200u);
    }
}

// A damaged record near by is repaired with what came from far away.
TEST_F(TieredStoreTest, DamageNearByIsRepairedFromFarAway) {
    TieredStore store = tiered();
    turn(store, units_);
    size_t n = 0;
    for (const auto& entry : fs::recursive_directory_iterator(dir_.file("near"))) {
        if (!entry.is_regular_file() || entry.file_size() < 20000) continue;
        std::string text = read_text(entry.path());
        text[text.size() / 2] ^= 1;
        write_text(entry.path(), text);
        ++n;
    }
    ASSERT_GT(n, 1u);
    const Match match = turn(store, units_);
    EXPECT_EQ(match.matched, 200u);
    EXPECT_TRUE(warned(match));
    EXPECT_TRUE(match.incomplete);
    const Match near = folder("near")->load(model_.query(units_));
    EXPECT_EQ(near.matched, 200u);
    EXPECT_EQ(near.n_damaged, 0u);
}

TEST_F(TieredStoreTest, OneThatCannotBeWrittenIsANote) {
    FaultyFileSystem broken;
    broken.all_writes_fail = true;
    broken.with_errno = ENOSPC;
    for (const bool near_is_broken : {true, false}) {
        fs::remove_all(dir_.file("near"));
        fs::remove_all(dir_.file("far"));
        TieredStore store(folder("near", near_is_broken ? &broken : nullptr),
                          folder("far", near_is_broken ? nullptr : &broken));
        const auto report = save(store, model_, units_);
        ASSERT_TRUE(report);
        EXPECT_EQ(report->positions_total, 200u);
        ASSERT_EQ(report->notes.size(), 1u);
        EXPECT_EQ(report->notes[0].level, LogLevel::warning);
        EXPECT_EQ(load_right(store, model_, units_), 200u);
    }
    TieredStore neither(folder("near2", &broken), folder("far2", &broken));
    EXPECT_FALSE(save(neither, model_, units_));
}

TEST_F(TieredStoreTest, LookingAfterItIsLookingAfterTheNearOne) {
    TieredStore store = tiered();
    turn(store, units_);
    ASSERT_TRUE(store.trim(0));
    EXPECT_TRUE(store.list().empty());
    EXPECT_EQ(load_right(*folder("far"), model_, units_), 200u);
}

}  // namespace
}  // namespace picolm::testing
