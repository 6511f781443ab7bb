// Every call to the operating system fails once at each point of every kind of run: the match of
// that run is right, what a save calls saved is saved, and nothing damaged is believed afterwards.
#include <filesystem>
#include <set>

#include "cache_support.h"

namespace picolm::testing {
namespace {

using cache::FileStore;
using cache::FileStoreOptions;

struct Scenario {
    const char* name;
    std::string before;  // contents of the file; "" with `absent`
    bool absent;
    uint64_t limit;
    std::vector<std::string> must_fail_at;  // calls that a save cannot do without
    bool left_over = false;                 // by a rewrite that was killed
};

class FaultTest : public ::testing::Test {
  protected:
    TempDir dir_;
    std::string path_ = dir_.file("prompt.kvc");
    FaultyFileSystem calm_;  // never told to fail
    FakeModel model_;
    Units old_ = random_units(150, 1);
    Units new_ = joined(Units(old_.begin(), old_.begin() + 100), random_units(90, 2));

    std::string saved_old() {
        std::filesystem::remove(path_);
        FileStore store(path_, {.files = &calm_});
        EXPECT_TRUE(save(store, model_, old_));
        return read_text(path_);
    }
    void prepare(const Scenario& scenario) {
        std::filesystem::remove(path_);
        if (!scenario.absent) write_text(path_, scenario.before);
        if (scenario.left_over) write_text(path_ + ".picolm-rewriting", std::string(5000, '\0'));
    }

    // One run with one fault; false when the run was over before call number `fail_at`.
    bool run(const Scenario& scenario, size_t fail_at, FaultyFileSystem::Fault fault, int error,
             std::set<std::string>& failed) {
        SCOPED_TRACE(std::string(scenario.name) + ", call " + std::to_string(fail_at));
        prepare(scenario);
        FaultyFileSystem files;
        files.fail_at = fail_at;
        files.fault = fault;
        files.with_errno = error;
        FileStoreOptions options{.limit_bytes = scenario.limit, .lock_wait_ms = 20};
        options.files = &files;
        FileStore store(path_, options);

        const uint32_t matched = load_right(store, model_, new_);
        const auto report = save(store, model_, new_, matched);
        const bool happened = !files.failed_call.empty();
        if (happened && fault != FaultyFileSystem::Fault::half) {
            for (const std::string& call : scenario.must_fail_at) {
                EXPECT_FALSE(report && files.failed_call == call) << call;
            }
        }
        failed.insert(files.failed_call);
        // A second run, undisturbed, sees only what is true, and repairs the rest.
        FileStore clean(path_, {.limit_bytes = scenario.limit, .files = &calm_});
        const uint32_t now = load_right(clean, model_, new_);
        if (report) {
            EXPECT_EQ(now, report->positions_total);
        }
        load_right(clean, model_, old_);
        const auto repaired = save(clean, model_, new_, now);
        EXPECT_TRUE(repaired) << (repaired ? "" : repaired.error().text);
        EXPECT_EQ(load_right(clean, model_, new_), 190u);
        EXPECT_FALSE(std::filesystem::exists(path_ + ".picolm-rewriting"));
        return happened;
    }
};

TEST_F(FaultTest, EveryCallFailsOnceAtEachPoint) {
    const std::string good = saved_old();
    std::string damaged = good;
    damaged[1000] ^= 1;
    const std::vector<std::string> rewriting = {"write", "truncate", "sync", "rename"};
    const uint64_t large = 1 << 30;
    const std::vector<Scenario> scenarios = {
        {"a new file", "", true, large, {"write", "sync", "sync folder"}},
        {"an empty file", "", false, large, {"write", "sync"}},
        {"appending", good, false, large, {"write", "sync"}},
        {"a torn tail",
         good.substr(0, good.size() - 9000),
         false,
         large,
         {"write", "sync", "truncate"}},
        {"a damaged record", damaged, false, large, {"write", "sync"}},
        {"rewriting at the limit", good, false, 145000, rewriting},
        {"appending beside a left-over rewrite", good, false, large, {"write", "sync"}, true},
        {"rewriting over a left-over rewrite", good, false, 145000, rewriting, true},
        {"replacing the original format", std::string("PCVK\x19\0\0\0\x16\0\0\0\0\1\0\0", 16),
         false, large, rewriting},
    };
    std::set<std::string> failed;
    for (const Scenario& scenario : scenarios) {
        using Fault = FaultyFileSystem::Fault;
        for (const auto& [fault, error] : {std::pair{Fault::error, EIO},
                                           {Fault::error, ENOSPC},
                                           {Fault::half, EIO},
                                           {Fault::half_fail, ENOSPC}}) {
            size_t call = 0;
            while (run(scenario, call, fault, error, failed)) ++call;
            EXPECT_GT(call, 15u);
        }
    }
    for (const char* name : {"open", "read", "write", "truncate", "sync", "lock", "file info",
                             "map", "info", "rename", "remove", "sync folder"}) {
        EXPECT_TRUE(failed.contains(name)) << name << " never failed";
    }
}

// The power goes off: of what was written since the last sync any part may be missing.
TEST_F(FaultTest, LostWritesBehindTheLastSyncAreNotBelieved) {
    const std::string before = saved_old();
    FileStore store(path_, {.files = &calm_});
    ASSERT_TRUE(save(store, model_, new_, 100));
    const std::string after = read_text(path_);
    std::mt19937 random(1);
    for (int round = 0; round < 300; ++round) {
        std::string torn = after;
        for (size_t at = before.size() / 512 * 512; at < torn.size(); at += 512) {
            if (random() % 4) continue;
            for (size_t i = std::max(at, before.size()); i < std::min(at + 512, torn.size()); ++i) {
                torn[i] = '\0';
            }
        }
        write_text(path_, torn);
        EXPECT_EQ(load_right(store, model_, old_), 150u);
        const uint32_t matched = load_right(store, model_, new_);
        EXPECT_GE(matched, 100u);
        ASSERT_TRUE(save(store, model_, new_, matched));
        EXPECT_EQ(load_right(store, model_, new_), 190u);
        EXPECT_EQ(load_right(store, model_, old_), 150u);
    }
}

}  // namespace
}  // namespace picolm::testing
