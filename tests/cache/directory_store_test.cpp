// The folder of records: what a prompt finds, what is written, what is dropped, and damage.
#include "cache/directory_store.h"

#include <sys/stat.h>

#include <filesystem>
#include <set>

#include "cache/directory_sweep.h"
#include "cache_support.h"

namespace picolm::testing {
namespace {

namespace fs = std::filesystem;
using cache::DirectoryStore;
using cache::Match;
using cache::SaveOutcome;
using cache::SaveReport;

class DirectoryStoreTest : public ::testing::Test {
  protected:
    TempDir dir_{memory_folder()};
    std::string path_ = dir_.file("cache");
    FakeModel model_;
    FaultyFileSystem calm_;  // never told to fail, and does not wait for the disk
    DirectoryStore store_{path_, {.limit_bytes = 1 << 30, .files = &calm_}};

    SaveReport must_save(const Units& units, uint32_t verified = 0) {
        auto report = save(store_, model_, units, verified);
        EXPECT_TRUE(report) << (report ? "" : report.error().text);
        return report ? *report : SaveReport{};
    }
    // Record files, without those of identities.
    std::vector<fs::path> objects() const {
        std::vector<fs::path> found;
        for (const auto& entry : fs::recursive_directory_iterator(path_)) {
            const std::string name = entry.path().filename();
            if (entry.is_regular_file() && name.size() == 32 &&
                entry.path().parent_path().filename() != "identities")
                found.push_back(entry.path());
        }
        return found;
    }
    uint64_t size() const {
        cache::Directory directory(path_, calm());
        const auto all = directory.list_all();
        return all ? cache::total_bytes(*all) : 0;
    }
    static FileSystem& calm() { return posix_file_system(); }
    size_t n_temporary() const {
        return static_cast<size_t>(std::distance(fs::directory_iterator(path_ + "/tmp"), {}));
    }
};

TEST_F(DirectoryStoreTest, AnAbsentFolderIsASilentMiss) {
    const Match match = store_.load(model_.query(random_units(10, 1)));
    EXPECT_EQ(match.matched, 0u);
    EXPECT_TRUE(match.notes.empty());
    EXPECT_FALSE(fs::exists(path_));
}

TEST_F(DirectoryStoreTest, SaveThenLoad) {
    const Units units = random_units(150, 1);
    const SaveReport report = must_save(units);
    EXPECT_EQ(report.outcome, SaveOutcome::appended);
    EXPECT_EQ(report.positions_new, 150u);
    const Match match = store_.load(model_.query(units));
    expect_right(match, model_, units);
    EXPECT_EQ(match.matched, 150u);
    EXPECT_FALSE(match.hidden.empty());
    EXPECT_EQ(match.bytes_read, 150 * model_.position_bytes + model_.hidden_bytes);
    for (const cache::Segment& s : match.segments)
        EXPECT_EQ(reinterpret_cast<uintptr_t>(s.payload.data()) % 64, 0u);
    EXPECT_EQ(objects().size(), 4u);  // three pages and the hidden state
    EXPECT_EQ(n_temporary(), 0u);
}

TEST_F(DirectoryStoreTest, E1OtherPromptsReuseTheCommonPrefix) {
    const Units base = random_units(150, 1);
    must_save(base);
    for (const size_t common : {0u, 1u, 60u, 63u, 64u, 65u, 127u, 128u, 149u, 150u}) {
        Units units(base.begin(), base.begin() + static_cast<ptrdiff_t>(common));
        units = joined(units, random_units(40, 99));
        EXPECT_EQ(load_right(store_, model_, units), common);
    }
    EXPECT_EQ(load_right(store_, model_, Units(base.begin(), base.begin() + 70)), 70u);
}

TEST_F(DirectoryStoreTest, E10EverythingBeforeAChangedUnitIsReusedAndTheRestAdded) {
    const Units base = random_units(90, 1);
    must_save(base);
    for (uint32_t clock = 0; clock < 5; ++clock) {
        Units units = base;
        units[70] = 40000 + clock;
        EXPECT_EQ(load_right(store_, model_, units), 70u);
        EXPECT_EQ(must_save(units, 70).positions_new, 20u);
        EXPECT_EQ(load_right(store_, model_, units), 90u);
    }
    EXPECT_EQ(load_right(store_, model_, base), 90u);
}

// The longest prefix shared with any saved prompt, found by comparing with every one of them.
TEST_F(DirectoryStoreTest, MatchesEqualExhaustiveSearch) {
    model_.position_bytes = 8;
    model_.hidden_bytes = 8;
    std::mt19937 random(7);
    for (int round = 0; round < 8; ++round) {
        fs::remove_all(path_);
        std::vector<Units> saved;
        for (int i = 0; i < 40; ++i) {
            Units units;
            if (!saved.empty() && random() % 4 != 0) {
                units = saved[random() % saved.size()];
                units.resize(random() % (units.size() + 1));
            }
            units =
                joined(units, random_units(1 + random() % 90, static_cast<uint32_t>(random()), 2));
            if (units.size() > 300) units.resize(300);
            uint32_t matched = 0;
            for (const Units& other : saved) {
                const auto common =
                    std::mismatch(units.begin(), units.end(), other.begin(), other.end()).first -
                    units.begin();
                matched = std::max(matched, static_cast<uint32_t>(common));
            }
            ASSERT_EQ(load_right(store_, model_, units), matched);
            ASSERT_EQ(must_save(units, matched).positions_new, units.size() - matched);
            saved.push_back(units);
        }
    }
}

// A shared beginning that ends inside a page, with more messages behind it than are looked at: the
// same message again is found by its name, a new one shares what the newest have.
TEST_F(DirectoryStoreTest, ThousandsOfMessagesBehindOneSystemPrompt) {
    model_.position_bytes = 16;
    const Units system = random_units(100, 1);
    for (uint32_t i = 0; i < 300; ++i) must_save(joined(system, random_units(20, 1000 + i)), 100);
    for (uint32_t i = 0; i < 300; i += 7) {
        const Units again = joined(system, random_units(20, 1000 + i));
        EXPECT_EQ(load_right(store_, model_, again), 120u) << i;
    }
    EXPECT_EQ(load_right(store_, model_, joined(system, random_units(20, 5000))), 100u);
}

TEST_F(DirectoryStoreTest, E4OtherSettingsAreKeptApartWithTheReason) {
    const Units units = random_units(100, 1);
    must_save(units);
    FakeModel other = model_;
    other.identity = "format=1;model=fake;rope=500000";
    const Match match = store_.load(other.query(units));
    EXPECT_EQ(match.matched, 0u);
    EXPECT_NE(all_notes(match.notes).find("rope: 10000 there, 500000 here"), std::string::npos);
    ASSERT_TRUE(save(store_, other, units));
    EXPECT_EQ(load_right(store_, other, units), 100u);
    EXPECT_EQ(load_right(store_, model_, units), 100u);
}

TEST_F(DirectoryStoreTest, ARecordOfAnotherSizeThanTheIdentityImpliesIsNotUsed) {
    const Units units = random_units(100, 1);
    must_save(units);
    FakeModel larger = model_;
    larger.position_bytes *= 2;
    EXPECT_EQ(store_.load(larger.query(units)).matched, 0u);
}

TEST_F(DirectoryStoreTest, E7NothingIsWrittenWhenNothingIsNew) {
    const Units units = random_units(150, 1);
    must_save(units);
    const size_t before = calm_.writes;
    for (int i = 0; i < 100; ++i) {
        const SaveReport report = must_save(units, i % 2 ? 150 : 0);
        EXPECT_EQ(report.outcome, SaveOutcome::nothing_new);
        EXPECT_EQ(report.positions_total, 150u);
    }
    must_save(Units(units.begin(), units.begin() + 70));
    EXPECT_EQ(calm_.writes, before);
    for (int i = 0; i < 100; ++i) load_right(store_, model_, units);
    EXPECT_LE(fs::file_size(path_ + "/usage"), 100u * 40);
}

TEST_F(DirectoryStoreTest, AGrowingConversationWritesEveryPositionOnce) {
    Units units;
    uint64_t written = 0;
    for (uint32_t turn = 0; turn < 100; ++turn) {
        units = joined(units, random_units(20, turn));
        const uint32_t matched = load_right(store_, model_, units);
        ASSERT_EQ(matched, units.size() - 20);
        written += must_save(units, matched).bytes_written;
    }
    // Hidden states of a FakeModel are large beside its positions: 100 of them, and headers.
    const uint64_t pages = units.size() * model_.position_bytes;
    EXPECT_LE(written - 100 * (model_.hidden_bytes + 128), pages + pages / 10);
}

TEST_F(DirectoryStoreTest, E8OnlyTheOwnerCanRead) {
    must_save(random_units(100, 1));
    for (const auto& entry : fs::recursive_directory_iterator(path_)) {
        const auto bits = entry.status().permissions() & fs::perms::mask;
        EXPECT_EQ(bits, entry.is_directory() ? fs::perms::owner_all
                                             : fs::perms::owner_read | fs::perms::owner_write)
            << entry.path();
    }
    EXPECT_EQ(fs::status(path_).permissions() & fs::perms::mask, fs::perms::owner_all);
}

TEST_F(DirectoryStoreTest, E8ASymlinkIsNotFollowed) {
    fs::create_directory(dir_.file("elsewhere"));
    fs::create_symlink(dir_.file("elsewhere"), path_);
    const Units units = random_units(100, 1);
    EXPECT_TRUE(warned(store_.load(model_.query(units))));
    const auto report = save(store_, model_, units);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().kind, ErrorKind::invalid);
    EXPECT_TRUE(fs::is_empty(dir_.file("elsewhere")));
    // Neither is one that stands for a record.
    fs::remove(path_);
    must_save(units);
    const fs::path object = objects().front();
    fs::rename(object, dir_.file("moved"));
    fs::create_symlink(dir_.file("moved"), object);
    EXPECT_LT(load_right(store_, model_, units), 101u);
    EXPECT_TRUE(warned(store_.load(model_.query(units))));
}

TEST_F(DirectoryStoreTest, E3WhatIsNoFolderOrNotOursIsLeftAlone) {
    const Units units = random_units(100, 1);
    write_text(path_, "a letter");
    EXPECT_TRUE(warned(store_.load(model_.query(units))));
    EXPECT_FALSE(save(store_, model_, units));
    EXPECT_EQ(read_text(path_), "a letter");
    fs::remove(path_);
    fs::create_directory(path_);
    write_text(path_ + "/thesis.txt", "a thesis");
    const auto report = save(store_, model_, units);
    ASSERT_FALSE(report);
    EXPECT_NE(report.error().text.find("thesis.txt"), std::string::npos);
    EXPECT_EQ(std::distance(fs::directory_iterator(path_), {}), 1);
}

TEST_F(DirectoryStoreTest, E9PositionsBeyondTheContextAreNotLoadedOrSaved) {
    const Units units = random_units(150, 1);
    auto report = save(store_, model_, units, 0, 100);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->positions_total, 100u);
    must_save(units, 100);
    cache::Query query = model_.query(units);
    query.max_positions = 80;
    const Match match = store_.load(query);
    EXPECT_EQ(match.matched, 80u);
    EXPECT_EQ(match.saved_positions, 150u);
    EXPECT_TRUE(match.hidden.empty());
}

TEST_F(DirectoryStoreTest, CancellingKeepsWhatIsComplete) {
    const Units units = random_units(300, 1);
    std::atomic<bool> cancel = false;
    cache::SaveRequest request;
    request.query = model_.query(units);
    request.cancel = &cancel;
    request.payload = [&](uint32_t first, uint32_t n, const cache::Sink& sink) {
        cancel = first >= 64;
        sink(model_.payload(units, first, n));
    };
    const auto report = store_.save(request);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->outcome, SaveOutcome::cancelled);
    EXPECT_EQ(load_right(store_, model_, units), 128u);
    EXPECT_EQ(n_temporary(), 0u);
}

TEST_F(DirectoryStoreTest, ReadOnlyWritesNothingAtAll) {
    const Units units = random_units(100, 1);
    must_save(units);
    FaultyFileSystem watched;
    DirectoryStore reader(path_, {.read_only = true, .files = &watched});
    EXPECT_EQ(load_right(reader, model_, units), 100u);
    ASSERT_TRUE(save(reader, model_, random_units(100, 2)));
    EXPECT_EQ(watched.writes, 0u);
}

// Every record cut and flipped at many places: never believed, and repaired by the next save.
TEST_F(DirectoryStoreTest, E3DamagedRecordsAreMissesAndAreRepaired) {
    const Units units = random_units(150, 1);
    must_save(units);
    std::vector<fs::path> all = objects();
    all.push_back(fs::directory_iterator(path_ + "/identities")->path());
    for (const fs::path& object : all) {
        const std::string good = read_text(object);
        std::vector<std::string> bad = {"", good.substr(0, 50), good.substr(0, good.size() - 1),
                                        good + '\0', std::string(good.size(), '\0')};
        for (size_t at = 0; at < good.size(); at += at < 400 ? 7 : 3001) {
            bad.push_back(good);
            bad.back()[at] ^= 0x20;
        }
        for (const std::string& text : bad) {
            write_text(object, text);
            const Match match = store_.load(model_.query(units));
            expect_right(match, model_, units);
            EXPECT_TRUE(warned(match) || match.matched == 150) << all_notes(match.notes);
            must_save(units, match.matched);
            const Match again = store_.load(model_.query(units));
            expect_right(again, model_, units);
            EXPECT_EQ(again.matched, 150u);
            EXPECT_FALSE(again.hidden.empty());
        }
    }
}

// Two records in each other's place: the names do not decide.
TEST_F(DirectoryStoreTest, E3RecordsUnderWrongNames) {
    const Units units = random_units(150, 1);
    must_save(units);
    const std::vector<fs::path> all = objects();
    for (size_t i = 0; i < all.size(); ++i)
        for (size_t j = 0; j < all.size(); ++j) {
            if (i == j) continue;
            const std::string good = read_text(all[j]);
            fs::copy_file(all[i], all[j], fs::copy_options::overwrite_existing);
            load_right(store_, model_, units);
            write_text(all[j], good);
        }
}

TEST_F(DirectoryStoreTest, E8TheLimitHoldsAndTheNewestChainIsThere) {
    const uint64_t limit = 300 * model_.position_bytes;
    DirectoryStore store(path_, {.limit_bytes = limit, .files = &calm_});
    std::mt19937 random(5);
    uint32_t evicted = 0;
    for (uint32_t i = 0; i < 120; ++i) {
        const Units units = joined(random_units(random() % 100, i % 3), random_units(60, 1000 + i));
        const uint32_t matched = load_right(store, model_, units);
        const auto report = save(store, model_, units, matched);
        ASSERT_TRUE(report) << report.error().text;
        EXPECT_EQ(report->positions_total, units.size());
        evicted += report->n_evicted;
        EXPECT_LE(size(), limit);
        EXPECT_EQ(load_right(store, model_, units), units.size());
    }
    EXPECT_GT(evicted, 100u);
    // Nothing unreachable is left behind.
    const auto contents = cache::read_contents(cache::Directory(path_, calm_));
    ASSERT_TRUE(contents);
    std::set<Key128> reachable = {cache::identity_key(model_.identity)};
    for (bool grew = true; grew;) {
        grew = false;
        for (const cache::Record& r : contents->records) {
            if (!reachable.contains(r.header.parent)) continue;
            Key128 key = r.header.parent;
            for (uint32_t i = 0; i < r.header.n; ++i) {
                key = cache::next_key(key, r.header.units[i]);
                grew |= reachable.insert(key).second;
            }
        }
    }
    for (const cache::Record& r : contents->records)
        EXPECT_TRUE(reachable.contains(r.header.parent)) << r.file.path;
}

TEST_F(DirectoryStoreTest, WhatIsUsedIsKeptAndItsBeginningToo) {
    model_.hidden_bytes = 50000;  // so large that it does not fit in between
    DirectoryStore store(path_, {.limit_bytes = 520 * 700, .files = &calm_});
    const Units system = random_units(64, 1);
    const Units favourite = joined(system, random_units(30, 2));
    ASSERT_TRUE(save(store, model_, favourite));
    for (uint32_t i = 0; i < 40; ++i) {
        const Match match = store.load(model_.query(favourite));
        expect_right(match, model_, favourite);
        EXPECT_EQ(match.matched, 94u) << i;
        EXPECT_FALSE(match.hidden.empty()) << i;  // it is as young as what it stands behind
        ASSERT_TRUE(save(store, model_, random_units(100, 100 + i)));
    }
    EXPECT_EQ(load_right(store, model_, random_units(100, 100)), 0u);
}

TEST_F(DirectoryStoreTest, ALimitOfNothingSavesNothing) {
    DirectoryStore store(path_, {.limit_bytes = 0, .files = &calm_});
    const auto report = save(store, model_, random_units(100, 1));
    ASSERT_TRUE(report);
    EXPECT_EQ(report->outcome, SaveOutcome::over_limit);
    EXPECT_TRUE(objects().empty());
}

TEST_F(DirectoryStoreTest, OfAChainThatIsTooLongTheFrontIsKept) {
    DirectoryStore store(path_, {.limit_bytes = 200 * 700, .files = &calm_});
    const Units units = random_units(500, 1);
    const auto report = save(store, model_, units);
    ASSERT_TRUE(report);
    EXPECT_GT(report->positions_total, 100u);
    EXPECT_LT(report->positions_total, 200u);
    EXPECT_EQ(load_right(store, model_, units), report->positions_total);
    EXPECT_NE(all_notes(report->notes).find("of 500 positions"), std::string::npos);
    EXPECT_LE(size(), 200u * 700);
    const auto again = save(store, model_, units, report->positions_total);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->outcome, SaveOutcome::over_limit);
    EXPECT_EQ(again->bytes_written, 0u);
}

TEST_F(DirectoryStoreTest, E8EvictingAMappedRecordHarmsNobody) {
    const Units units = random_units(150, 1);
    must_save(units);
    const Match match = store_.load(model_.query(units));
    ASSERT_TRUE(store_.trim(0));
    EXPECT_TRUE(objects().empty());
    expect_right(match, model_, units);
    EXPECT_EQ(match.matched, 150u);
    EXPECT_EQ(load_right(store_, model_, units), 0u);
}

TEST_F(DirectoryStoreTest, TrimKeepsWhatWasUsedLast) {
    for (uint32_t i = 0; i < 10; ++i) must_save(random_units(64, i));
    load_right(store_, model_, random_units(64, 2));
    load_right(store_, model_, random_units(64, 5));
    const auto report = store_.trim(size() / 4);
    ASSERT_TRUE(report);
    EXPECT_GT(report->n_evicted, 0u);
    EXPECT_EQ(load_right(store_, model_, random_units(64, 2)), 64u);
    EXPECT_EQ(load_right(store_, model_, random_units(64, 5)), 64u);
    EXPECT_EQ(load_right(store_, model_, random_units(64, 0)), 0u);
}

TEST_F(DirectoryStoreTest, ListTellsUses) {
    const Units units = random_units(100, 1);
    must_save(units);
    for (int i = 0; i < 3; ++i) load_right(store_, model_, units);
    uint32_t positions = 0;
    uint64_t uses = 0;
    for (const cache::RecordInfo& info : store_.list()) {
        EXPECT_EQ(info.identity, model_.identity);
        positions += info.header.n;
        uses += info.n_uses;
        EXPECT_GT(info.used_ns, 0);
    }
    EXPECT_EQ(positions, 100u);
    EXPECT_EQ(uses, 3u);
}

TEST_F(DirectoryStoreTest, TemporaryFilesOlderThanAMinuteAreRemoved) {
    must_save(random_units(10, 1));
    const std::string old = path_ + "/tmp/0123456789abcdef", fresh = path_ + "/tmp/fresh";
    write_text(old, "left over");
    write_text(fresh, "being written");
    fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::seconds(90));
    must_save(random_units(10, 2));
    EXPECT_FALSE(fs::exists(old));
    EXPECT_TRUE(fs::exists(fresh));
}

TEST(UsageLog, DamagedEntriesAreSkipped) {
    TempDir dir;
    const std::string path = dir.file("usage");
    FileSystem& files = posix_file_system();
    uint64_t size = 0;
    for (uint64_t i = 0; i < 50; ++i)
        ASSERT_EQ(cache::add_usage(files, path, {i % 5, 7}, static_cast<int64_t>(i), size), 0);
    EXPECT_EQ(size, 2000u);
    auto usage = cache::read_usage(files, path);
    ASSERT_EQ(usage.size(), 5u);
    EXPECT_EQ((usage[{3, 7}].n), 10u);
    EXPECT_EQ((usage[{3, 7}].last_ns), 48);
    std::string text = read_text(path);
    text.erase(100, 17);  // an entry that was cut
    text[1000] ^= 1;
    write_text(path, text);
    uint64_t n = 0;
    for (const auto& [key, one] : cache::read_usage(files, path)) n += one.n;
    EXPECT_EQ(n, 48u);
    ASSERT_EQ(cache::write_usage(files, path, dir.file("tmp"), usage), 0);
    EXPECT_EQ(fs::file_size(path), 200u);
    EXPECT_EQ((cache::read_usage(files, path)[{3, 7}].n), 10u);
}

TEST_F(DirectoryStoreTest, TheLogOfUsesStaysSmall) {
    const Units units = random_units(10, 1);
    must_save(units);
    for (int i = 0; i < 8000; ++i) store_.load(model_.query(units));
    EXPECT_LT(fs::file_size(path_ + "/usage"), 270u << 10);
    uint64_t uses = 0;
    for (const cache::RecordInfo& info : store_.list()) uses += info.n_uses;
    EXPECT_EQ(uses, 8000u);
}

// Every call to the operating system fails once at each point.
TEST_F(DirectoryStoreTest, EveryCallFailsOnceAtEachPoint) {
    const Units old = random_units(150, 1);
    const Units units = joined(Units(old.begin(), old.begin() + 100), random_units(90, 2));
    const std::string backup = dir_.file("backup");
    must_save(old);
    fs::rename(path_, backup);
    std::set<std::string> failed;
    using Fault = FaultyFileSystem::Fault;
    const auto run = [&](bool absent, uint64_t limit, size_t call, Fault fault, int error) {
        SCOPED_TRACE("call " + std::to_string(call) + (absent ? ", absent" : "") + ", limit " +
                     std::to_string(limit));
        fs::remove_all(path_);
        if (!absent) fs::copy(backup, path_, fs::copy_options::recursive);
        FaultyFileSystem files;
        files.fail_at = call;
        files.fault = fault;
        files.with_errno = error;
        DirectoryStore store(
            path_, {.limit_bytes = limit, .lock_wait_ms = 20, .n_threads = 1, .files = &files});
        const uint32_t matched = load_right(store, model_, units);
        const auto report = save(store, model_, units, matched);
        failed.insert(files.failed_call);
        const bool happened = !files.failed_call.empty();
        if (fault == Fault::error && report)
            for (const char* needed : {"write", "sync"})
                if (files.failed_call == needed) {
                    // Only the tag and the log of uses may fail without a word.
                    EXPECT_EQ(load_right(store_, model_, units), report->positions_total);
                }
        DirectoryStore clean(path_, {.limit_bytes = limit, .files = &calm_});
        const uint32_t now = load_right(clean, model_, units);
        if (report) {
            EXPECT_EQ(now, report->positions_total);
        }
        load_right(clean, model_, old);
        const auto repaired = save(clean, model_, units, now);
        EXPECT_TRUE(repaired) << (repaired ? "" : repaired.error().text);
        EXPECT_EQ(load_right(clean, model_, units), 190u);
        EXPECT_LE(n_temporary(), 1u);
        return happened;
    };
    for (const auto& [absent, limit] : {std::pair{true, uint64_t{1} << 30},
                                        {false, uint64_t{1} << 30},
                                        {false, uint64_t{145000}}})
        for (const auto& [fault, error] : {std::pair{Fault::error, EIO},
                                           {Fault::error, EMFILE},
                                           {Fault::error, ENOSPC},
                                           {Fault::half, EIO},
                                           {Fault::half_fail, ENOSPC}}) {
            size_t call = 0;
            while (run(absent, limit, call, fault, error)) ++call;
            EXPECT_GT(call, 20u);
        }
    for (const char* name : {"open", "read", "write", "sync", "lock", "file info", "map", "info",
                             "rename", "remove", "sync folder", "make folder", "list folder"})
        EXPECT_TRUE(failed.contains(name)) << name << " never failed";
}

}  // namespace
}  // namespace picolm::testing
