// The size limit: what is kept, what is dropped, and how much is written for it.
#include <filesystem>

#include "cache/retention.h"
#include "cache_support.h"

namespace picolm::testing {
namespace {

using cache::FileStore;
using cache::Match;
using cache::SaveOutcome;
using cache::SaveReport;

class LimitTest : public ::testing::Test {
  protected:
    TempDir dir_;
    std::string path_ = dir_.file("prompt.kvc");
    FakeModel model_;
    FaultyFileSystem calm_;  // never told to fail

    uint64_t size() const { return std::filesystem::file_size(path_); }
    SaveReport must_save(FileStore& store, const Units& units) {
        const uint32_t matched = load_right(store, model_, units);
        auto report = save(store, model_, units, matched);
        EXPECT_TRUE(report) << report.error().text;
        return report ? *report : SaveReport{};
    }
};

TEST_F(LimitTest, E8TheLimitHoldsAndTheNewestChainIsThere) {
    const uint64_t limit = 300 * model_.position_bytes;
    FileStore store(path_, {.limit_bytes = limit, .files = &calm_});
    std::mt19937 random(5);
    for (uint32_t i = 0; i < 120; ++i) {
        const Units units = joined(random_units(random() % 100, i % 3), random_units(60, 1000 + i));
        const SaveReport report = must_save(store, units);
        EXPECT_EQ(report.positions_total, units.size());
        EXPECT_LE(size(), limit);
        EXPECT_EQ(load_right(store, model_, units), units.size());
        EXPECT_FALSE(std::filesystem::exists(path_ + ".picolm-rewriting"));
    }
}

TEST_F(LimitTest, OlderChainsGoFirst) {
    FileStore store(path_, {.limit_bytes = 520 * 700, .files = &calm_});
    for (uint32_t i = 0; i < 6; ++i) must_save(store, random_units(100, i));
    // The sixth did not fit: half of the limit is kept, which is two of these.
    EXPECT_EQ(load_right(store, model_, random_units(100, 5)), 100u);
    EXPECT_EQ(load_right(store, model_, random_units(100, 4)), 100u);
    EXPECT_LE(load_right(store, model_, random_units(100, 3)), 64u);  // what fits of it
    for (uint32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(load_right(store, model_, random_units(100, i)), 0u) << i;
    }
}

TEST_F(LimitTest, TheChainInUseCountsAsTheNewest) {
    FileStore store(path_, {.limit_bytes = 345000, .files = &calm_});
    for (uint32_t i = 0; i < 5; ++i) must_save(store, random_units(100, i));
    const Units longer = joined(random_units(100, 0), random_units(40, 77));  // extends the oldest
    EXPECT_EQ(must_save(store, longer).outcome, SaveOutcome::rewritten);
    EXPECT_EQ(load_right(store, model_, longer), 140u);
    EXPECT_EQ(load_right(store, model_, random_units(100, 4)), 100u);
    EXPECT_EQ(load_right(store, model_, random_units(100, 1)), 0u);
}

TEST_F(LimitTest, OfAChainThatIsTooLongTheFrontIsKeptAndThatIsSaidOnceWritten) {
    const uint64_t limit = 150 * 700;
    FileStore store(path_, {.limit_bytes = limit, .files = &calm_});
    const Units units = random_units(400, 1);
    const SaveReport first = must_save(store, units);
    EXPECT_EQ(first.positions_total, 128u);
    EXPECT_NE(all_notes(first.notes).find("holds 128 of 400 positions"), std::string::npos);
    EXPECT_LE(size(), limit);
    const std::string before = read_text(path_);
    for (int run = 0; run < 3; ++run) {
        const SaveReport report = must_save(store, units);
        EXPECT_EQ(report.outcome, SaveOutcome::over_limit);
        EXPECT_EQ(report.bytes_written, 0u);
        EXPECT_EQ(report.positions_total, 128u);
        EXPECT_EQ(read_text(path_), before);
    }
    EXPECT_EQ(load_right(store, model_, units), 128u);
}

TEST_F(LimitTest, ALimitTooSmallForAnythingWritesNothing) {
    FileStore store(path_, {.limit_bytes = 500, .files = &calm_});
    EXPECT_EQ(must_save(store, random_units(70, 1)).outcome, SaveOutcome::over_limit);
    EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(LimitTest, ALoweredLimitShrinksTheFile) {
    {
        FileStore store(path_, {.files = &calm_});
        for (uint32_t i = 0; i < 5; ++i) must_save(store, random_units(100, i));
    }
    FileStore store(path_, {.limit_bytes = 250 * 700, .files = &calm_});
    EXPECT_EQ(must_save(store, random_units(100, 2)).outcome, SaveOutcome::rewritten);
    EXPECT_LE(size(), 250u * 700);
    EXPECT_EQ(load_right(store, model_, random_units(100, 2)), 100u);
    EXPECT_EQ(must_save(store, random_units(100, 2)).outcome, SaveOutcome::nothing_new);
}

TEST_F(LimitTest, DeadBytesThatExceedTheLiveOnesAreDropped) {
    FileStore store(path_, {.files = &calm_});
    for (uint32_t i = 0; i < 4; ++i) must_save(store, random_units(100, i));
    std::string bad = read_text(path_);
    size_t offset = static_cast<size_t>(store.list()[0].bytes());
    int chain = 0;
    for (const auto& record : store.list()) {  // the first page of three chains
        if (record.header.kind == cache::RecordKind::identity) continue;
        if (record.header.first == 0 && chain++ < 3) bad[offset + 3] ^= 1;
        offset += static_cast<size_t>(record.bytes());
    }
    write_text(path_, bad);
    const SaveReport report = must_save(store, random_units(10, 50));
    EXPECT_EQ(report.outcome, SaveOutcome::rewritten);
    EXPECT_LT(size(), bad.size() / 2);
    EXPECT_EQ(load_right(store, model_, random_units(10, 50)), 10u);
    EXPECT_EQ(load_right(store, model_, random_units(100, 3)), 100u);
}

TEST_F(LimitTest, E8EvictingAMappedRecordHarmsNobody) {
    const uint64_t limit = 300 * 700;
    FileStore store(path_, {.limit_bytes = limit, .files = &calm_});
    const Units units = random_units(150, 1);
    must_save(store, units);
    const Match held = store.load(model_.query(units));
    for (uint32_t i = 0; i < 10; ++i) must_save(store, random_units(200, 100 + i));
    EXPECT_EQ(load_right(store, model_, units), 0u);  // gone from the file
    EXPECT_EQ(held.matched, 150u);
    expect_right(held, model_, units);
}

TEST_F(LimitTest, TrimKeepsTheNewest) {
    FileStore store(path_, {.files = &calm_});
    EXPECT_TRUE(store.trim(0));  // nothing there: nothing to do
    for (uint32_t i = 0; i < 5; ++i) must_save(store, random_units(100, i));
    const auto report = store.trim(250 * 700);
    ASSERT_TRUE(report) << report.error().text;
    EXPECT_EQ(report->outcome, SaveOutcome::rewritten);
    EXPECT_LE(size(), 250u * 700);
    EXPECT_EQ(load_right(store, model_, random_units(100, 4)), 100u);
    EXPECT_EQ(load_right(store, model_, random_units(100, 3)), 100u);
    EXPECT_EQ(load_right(store, model_, random_units(100, 0)), 0u);
    const auto again = store.trim(250 * 700);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->outcome, SaveOutcome::nothing_new);
}

TEST_F(LimitTest, OtherIdentitiesLiveUnderTheSameLimit) {
    FakeModel other;
    other.identity = "format=1;model=other";
    FileStore store(path_, {.limit_bytes = 500 * 700, .files = &calm_});
    ASSERT_TRUE(save(store, other, random_units(100, 50)));
    for (uint32_t i = 0; i < 3; ++i) must_save(store, random_units(100, i));
    EXPECT_EQ(load_right(store, other, random_units(100, 50)), 100u);
    for (uint32_t i = 3; i < 8; ++i) must_save(store, random_units(100, i));
    EXPECT_EQ(load_right(store, other, random_units(100, 50)), 0u);
    EXPECT_LE(size(), 500u * 700);
}

// The bar of 100 runs with one system prompt and a message each, in the shape of TinyLlama.
TEST_F(LimitTest, AHundredMessagesBehindOneSystemPrompt) {
    model_.position_bytes = 2 * 22 * 256 * 2;
    model_.hidden_bytes = 2048 * 4;
    FileStore store(path_, {.files = &calm_});
    const Units system = random_units(500, 1);
    uint64_t written = 0;
    for (uint32_t i = 0; i < 100; ++i) {
        const Units units = joined(system, random_units(20, 100 + i));
        const Match match = store.load(model_.query(units));
        EXPECT_GE(match.matched, i == 0 ? 0u : 500u);
        const auto report = save(store, model_, units, match.matched);
        ASSERT_TRUE(report);
        written += report->bytes_written;
        EXPECT_LE(size(), cache::kDefaultFileLimit);
    }
    const uint64_t distinct = (500 + 100 * 20) * model_.position_bytes;
    RecordProperty("bytes_per_distinct_byte_percent", static_cast<int>(written * 100 / distinct));
    EXPECT_LE(written, distinct * 11 / 10);
    EXPECT_EQ(written, size());
}

TEST_F(LimitTest, TwoUnrelatedPromptsAlternating) {
    FileStore store(path_, {.files = &calm_});
    const Units a = random_units(500, 1);
    const Units b = random_units(300, 2);
    for (int round = 0; round < 50; ++round) {
        for (const Units& units : {a, b}) {
            const Match match = store.load(model_.query(units));
            EXPECT_EQ(match.matched, round == 0 ? 0 : units.size());
            EXPECT_EQ(match.hidden.empty(), round == 0);
            const auto report = save(store, model_, units, match.matched);
            ASSERT_TRUE(report);
            EXPECT_EQ(report->bytes_written > 0, round == 0);
        }
    }
}

// More prompts than fit, one after the other, again and again: rewriting costs at most as much as
// what made it necessary.
TEST_F(LimitTest, CyclingThroughMoreThanFitsWritesAtMostTwice) {
    const uint64_t limit = 1000 * 700;
    FileStore store(path_, {.limit_bytes = limit, .files = &calm_});
    uint64_t written = 0;
    uint64_t saved = 0;
    for (uint32_t i = 0; i < 200; ++i) {
        const SaveReport report = must_save(store, random_units(60, i % 25));
        written += report.bytes_written;
        saved += report.positions_new * model_.position_bytes;
        EXPECT_LE(size(), limit);
    }
    EXPECT_LE(written, saved * 22 / 10);
}

}  // namespace
}  // namespace picolm::testing
