// Case E5: processes that are killed, several writers, and readers meanwhile.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "cache/record_log.h"
#include "cache_support.h"

namespace picolm::testing {
namespace {

using cache::FileStore;

class ConcurrencyTest : public ::testing::Test {
  protected:
    TempDir dir_;
    std::string path_ = dir_.file("prompt.kvc");
    FakeModel model_;

    // Prompt number i of a family: they share beginnings, end inside pages, and differ by family.
    static Units prompt(uint32_t i, uint32_t family) {
        return joined(random_units(i * 37 % 130, i % 3),
                      random_units(1 + i * 53 % 100, 1000 + i, family));
    }
    // Saves prompts until killed, or `count` of them. Small limit: about every fifth rewrites.
    void writer(uint32_t seed, uint32_t count, uint32_t& skipped) {
        FileStore store(path_, {.limit_bytes = 700 * 700, .lock_wait_ms = 50});
        for (uint32_t i = 0; i < count; ++i) {
            const Units units = prompt(seed * 1000 + i % 40, 30000 + seed);
            const uint32_t matched = store.load(model_.query(units)).matched;
            const auto report = save(store, model_, units, matched);
            if (report) continue;
            if (report.error().kind != ErrorKind::busy) _exit(1);
            ++skipped;
        }
    }
    void expect_sound(uint32_t families) {
        std::unique_ptr<File> file;
        if (posix_file_system().open(path_, FileSystem::Mode::read, file) != 0) return;
        const auto log = cache::scan_log(*file, path_);
        ASSERT_TRUE(log);
        EXPECT_EQ(log->head, cache::HeadKind::ours);
        EXPECT_EQ(log->damaged_bytes, 0u);
        for (const cache::LogEntry& entry : log->entries) {
            EXPECT_TRUE(cache::payload_intact(*file, entry));
        }
        FileStore store(path_);
        for (uint32_t family = 0; family < families; ++family) {
            for (uint32_t i = 0; i < 40; i += 7) {
                load_right(store, model_, prompt(family * 1000 + i, 30000 + family));
            }
        }
        uint32_t names = 0;
        for ([[maybe_unused]] const auto& name : std::filesystem::directory_iterator(dir_.path())) {
            ++names;
        }
        EXPECT_LE(names, 2u);  // the file and at most one that a killed process was writing
    }
};

TEST_F(ConcurrencyTest, E5KilledAtRandomMoments) {
    if (!kForks) GTEST_SKIP() << "forks under the thread sanitizer";
    std::mt19937 random(11);
    uint32_t torn = 0;
    uint32_t left_over = 0;
    for (uint32_t round = 0; round < 120; ++round) {
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            uint32_t skipped = 0;
            writer(round % 4, 100000, skipped);
            _exit(0);
        }
        usleep(static_cast<useconds_t>(1000 + random() % 20000));
        ASSERT_EQ(kill(child, SIGKILL), 0);
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFSIGNALED(status));
        std::unique_ptr<File> file;
        if (posix_file_system().open(path_, FileSystem::Mode::read, file) == 0) {
            const auto log = cache::scan_log(*file, path_);
            ASSERT_TRUE(log);
            torn += log->file_size > log->valid_end;
        }
        left_over += std::filesystem::exists(path_ + ".picolm-rewriting");
        expect_sound(4);
    }
    RecordProperty("torn_tails", static_cast<int>(torn));
    RecordProperty("left_over_files", static_cast<int>(left_over));
    FileStore store(path_);
    const Units units = random_units(100, 424242);
    ASSERT_TRUE(save(store, model_, units));
    EXPECT_EQ(load_right(store, model_, units), 100u);
    EXPECT_FALSE(std::filesystem::exists(path_ + ".picolm-rewriting"));
}

TEST_F(ConcurrencyTest, E5TwoProcessesSave200TimesEachAndAReaderLooksOn) {
    if (!kForks) GTEST_SKIP() << "forks under the thread sanitizer";
    std::vector<pid_t> children;
    for (uint32_t seed = 0; seed < 2; ++seed) {
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            uint32_t skipped = 0;
            writer(seed, 200, skipped);
            _exit(skipped > 100 ? 2 : 0);
        }
        children.push_back(child);
    }
    FileStore store(path_);
    uint32_t hits = 0;
    uint32_t loads = 0;
    for (size_t done = 0; done < children.size();) {
        const Units units = prompt(loads % 2 * 1000 + loads % 40, 30000 + loads % 2);
        hits += load_right(store, model_, units) > 0;
        ++loads;
        int status = 0;
        if (waitpid(children[done], &status, WNOHANG) != children[done]) continue;
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
        ++done;
    }
    EXPECT_GT(hits, 0u);
    expect_sound(2);
    EXPECT_FALSE(std::filesystem::exists(path_ + ".picolm-rewriting"));
}

TEST_F(ConcurrencyTest, E5ThreadsWriteAndReadThroughOneStore) {
    FileStore shared(path_, {.limit_bytes = 700 * 700, .lock_wait_ms = 50});
    std::vector<std::thread> threads;
    std::atomic<bool> stop = false;
    std::atomic<uint32_t> errors = 0;
    for (uint32_t t = 0; t < 2; ++t) {
        threads.emplace_back([&, t] {
            for (uint32_t i = 0; i < 60; ++i) {
                const Units units = prompt(t * 1000 + i % 40, 30000 + t);
                const uint32_t matched = shared.load(model_.query(units)).matched;
                const auto report = save(shared, model_, units, matched);
                if (!report && report.error().kind != ErrorKind::busy) ++errors;
            }
        });
    }
    std::thread reader([&] {
        for (uint32_t i = 0; !stop; ++i) {
            load_right(shared, model_, prompt(i % 2 * 1000 + i % 40, 30000 + i % 2));
        }
    });
    for (std::thread& thread : threads) thread.join();
    stop = true;
    reader.join();
    EXPECT_EQ(errors, 0u);
    expect_sound(2);
}

// Many processes meet where there is no file yet: one creates it, the others add to it.
TEST_F(ConcurrencyTest, ThoseWhoCreateTheFileTogetherLoseNothing) {
    for (uint32_t round = 0; round < 20; ++round) {
        std::filesystem::remove(path_);
        std::vector<std::thread> threads;
        std::atomic<uint32_t> saved = 0;
        for (uint32_t t = 0; t < 4; ++t) {
            threads.emplace_back([&, t] {
                FileStore store(path_, {.lock_wait_ms = 20000});
                saved += save(store, model_, random_units(70, 10 * round + t)).has_value();
            });
        }
        for (std::thread& thread : threads) thread.join();
        EXPECT_EQ(saved, 4u);
        FileStore store(path_);
        for (uint32_t t = 0; t < 4; ++t) {
            EXPECT_EQ(load_right(store, model_, random_units(70, 10 * round + t)), 70u);
        }
    }
}

}  // namespace
}  // namespace picolm::testing
