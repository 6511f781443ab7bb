// Case E5 for the folder: many processes on it at once, some of them killed, and records removed
// under their feet.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "cache/directory_store.h"
#include "cache/directory_sweep.h"
#include "cache_support.h"

namespace picolm::testing {
namespace {

namespace fs = std::filesystem;
using cache::DirectoryStore;

class DirectoryConcurrencyTest : public ::testing::Test {
  protected:
    TempDir dir_{memory_folder()};
    std::string path_ = dir_.file("cache");
    FakeModel model_;

    // Forty prompts that share beginnings, more than the limit holds.
    static Units prompt(uint32_t i) {
        i %= 40;
        return joined(random_units(i * 37 % 130, i % 3), random_units(1 + i * 53 % 100, 1000 + i));
    }
    // Uses the cache as a run does; false when it was given something wrong, or failed.
    bool use(uint32_t i, FileSystem& files) {
        DirectoryStore store(path_, {.limit_bytes = 1000 * 700, .files = &files});
        const Units units = prompt(i);
        const uint32_t matched = load_right(store, model_, units);
        const auto report = save(store, model_, units, matched);
        if (!report && report.error().kind != ErrorKind::busy) {
            ADD_FAILURE() << report.error().text;
        }
        return !HasFailure();
    }
    pid_t start(uint32_t seed, uint32_t count) {
        const pid_t child = fork();
        if (child != 0) return child;
        FaultyFileSystem files;  // does not wait for the disk
        std::mt19937 random(seed);
        for (uint32_t i = 0; i < count; ++i) {
            if (!use(static_cast<uint32_t>(random()), files)) _exit(3);
        }
        _exit(0);
    }
    void expect_sound() {
        DirectoryStore store(path_, {.limit_bytes = 1000 * 700});
        const auto report = store.verify(false);
        ASSERT_TRUE(report) << report.error().text;
        EXPECT_EQ(report->n_damaged, 0u);
        for (const std::string& what : report->damaged) ADD_FAILURE() << what;
        for (uint32_t i = 0; i < 40; ++i) load_right(store, model_, prompt(i));
    }
};

TEST_F(DirectoryConcurrencyTest, E5EightProcessesAndOthersThatAreKilled) {
    if (!kForks) GTEST_SKIP() << "forks under the thread sanitizer";
    std::vector<pid_t> workers;
    for (uint32_t seed = 0; seed < 8; ++seed) workers.push_back(start(seed, 100));
    std::mt19937 random(99);
    uint32_t killed = 0;
    for (size_t done = 0; done < workers.size();) {
        const pid_t victim = start(static_cast<uint32_t>(random()), 100000);
        usleep(static_cast<useconds_t>(1000 + random() % 30000));
        ASSERT_EQ(kill(victim, SIGKILL), 0);
        int status = 0;
        ASSERT_EQ(waitpid(victim, &status, 0), victim);
        ASSERT_TRUE(WIFSIGNALED(status)) << "exit code " << WEXITSTATUS(status);
        ++killed;
        while (done < workers.size() && waitpid(workers[done], &status, WNOHANG) == workers[done]) {
            EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
            ++done;
        }
    }
    EXPECT_GT(killed, 5u);
    expect_sound();
    // What was killed while it wrote has left files, which the next save removes when they are old.
    for (const auto& entry : fs::directory_iterator(path_ + "/tmp"))
        fs::last_write_time(entry, fs::file_time_type::clock::now() - std::chrono::seconds(61));
    FaultyFileSystem files;
    DirectoryStore store(path_, {.limit_bytes = 1000 * 700, .files = &files});
    ASSERT_TRUE(save(store, model_, random_units(100, 424242)));
    EXPECT_TRUE(fs::is_empty(path_ + "/tmp"));
    const auto objects = cache::Directory(path_, files).list_all();
    ASSERT_TRUE(objects);
    EXPECT_LE(cache::total_bytes(*objects), 1000u * 700);
}

TEST_F(DirectoryConcurrencyTest, E5ThreadsWithOneStore) {
    DirectoryStore shared(path_, {.limit_bytes = 1000 * 700});
    std::vector<std::thread> threads;
    std::atomic<uint32_t> errors = 0;
    for (uint32_t t = 0; t < 3; ++t) {
        threads.emplace_back([&, t] {
            for (uint32_t i = 0; i < 40; ++i) {
                const Units units = prompt(i * 7 + t * 13);
                const uint32_t matched = load_right(shared, model_, units);
                errors += !save(shared, model_, units, matched);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(errors, 0u);
    expect_sound();
}

TEST_F(DirectoryConcurrencyTest, ThoseWhoCreateTheFolderTogetherLoseNothing) {
    for (uint32_t round = 0; round < 20; ++round) {
        fs::remove_all(path_);
        std::vector<std::thread> threads;
        std::atomic<uint32_t> saved = 0;
        for (uint32_t t = 0; t < 4; ++t) {
            threads.emplace_back([&, t] {
                DirectoryStore store(path_, {.limit_bytes = 1 << 30});
                saved += save(store, model_, random_units(70, 10 * round + t)).has_value();
            });
        }
        for (std::thread& thread : threads) thread.join();
        EXPECT_EQ(saved, 4u);
        DirectoryStore store(path_);
        for (uint32_t t = 0; t < 4; ++t)
            EXPECT_EQ(load_right(store, model_, random_units(70, 10 * round + t)), 70u);
    }
}

}  // namespace
}  // namespace picolm::testing
