// Many processes on one folder whose limit makes them evict each other's prompts, some of them
// killed. PICOLM_CROWD_RUNS: runs of each of the eight workers, 100 unless set.
#include <atomic>
#include <cstdlib>
#include <random>

#include "models.h"
#include "process.h"

namespace picolm::testing {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> prompts() {
    std::vector<std::string> all;
    for (const char* who : {"You are a patient helper.", "You tell the time.", "You sing."})
        for (int i = 0; i < 8; ++i)
            all.push_back(who + kPrompt + (i < 2 ? "" : " Hm.") + std::string(i % 5, '!') +
                          std::to_string(i * 7919));
    return all;
}

std::vector<std::string> args_for(const std::string& prompt) {
    return {tiny_model(), "-p", prompt, "-t", "0", "-n", "6", "-j", "1", "--quiet"};
}

uint64_t folder_bytes(const std::string& path) {
    uint64_t bytes = 0;
    for (const auto& entry : fs::recursive_directory_iterator(path))
        if (entry.is_regular_file()) bytes += entry.file_size();
    return bytes;
}

struct Counts {
    std::atomic<int> done{0}, killed{0}, wrong{0}, failed{0};
};

void work(unsigned seed, int n_runs, const std::vector<std::string>& all,
          const std::vector<std::string>& answers, const std::vector<std::string>& more,
          Counts& counts) {
    std::mt19937 random(seed);
    for (int i = 0; i < n_runs; ++i) {
        const size_t which = random() % all.size();
        std::vector<std::string> args = args_for(all[which]);
        args.insert(args.end(), more.begin(), more.end());
        Child child(args, {});
        if (random() % 4 == 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 40000));
            child.send(SIGKILL);
        }
        const Outcome o = child.wait();
        if (o.signal == SIGKILL) {
            ++counts.killed;
            continue;
        }
        ++counts.done;
        if (o.code != 0) ++counts.failed;
        if (o.out != answers[which]) ++counts.wrong;
        if (o.code != 0 || o.out != answers[which]) ADD_FAILURE() << all[which] << "\n" << o;
    }
}

TEST(CacheCrowd, E5_EightProcessesUnderALimitSomeOfThemKilled) {
    const char* asked = std::getenv("PICOLM_CROWD_RUNS");
    const int n_runs = asked ? std::atoi(asked) : 100;
    const std::vector<std::string> all = prompts();
    const TempDir dir{memory_folder()};

    // Answers without a cache, and how much all prompts take.
    std::vector<std::string> answers;
    for (const std::string& prompt : all) {
        const Outcome o = run(args_for(prompt));
        ASSERT_EQ(o.code, 0) << o;
        answers.push_back(o.out);
        std::vector<std::string> args = args_for(prompt);
        args.insert(args.end(), {"--cache-dir", dir.file("all"), "--cache-limit", "1G"});
        ASSERT_EQ(run(args).out, o.out);
    }
    const uint64_t limit = folder_bytes(dir.file("all")) / 2;
    const std::string place = dir.file("shared");
    const std::vector<std::string> more = {"--cache-dir", place, "--cache-limit",
                                           std::to_string(limit)};
    Counts counts;
    std::vector<std::thread> workers;
    for (unsigned i = 0; i < 8; ++i)
        workers.emplace_back([&, i] { work(i + 1, n_runs, all, answers, more, counts); });
    for (std::thread& worker : workers) worker.join();
    std::printf("%d runs ended, %d were killed\n", counts.done.load(), counts.killed.load());
    EXPECT_GT(counts.done, counts.killed);
    EXPECT_GT(counts.killed, 0);
    EXPECT_EQ(counts.wrong, 0);
    EXPECT_EQ(counts.failed, 0);

    // What the killed ones left is as if they had been killed two minutes ago.
    const auto long_ago = fs::file_time_type::clock::now() - std::chrono::minutes(2);
    for (const auto& entry : fs::directory_iterator(place + "/tmp"))
        fs::last_write_time(entry.path(), long_ago);
    std::vector<std::string> args = args_for(kPrompt + " And now something new.");
    args.insert(args.end(), more.begin(), more.end());
    ASSERT_EQ(run(args).code, 0);
    EXPECT_TRUE(fs::is_empty(place + "/tmp"));
    EXPECT_LE(folder_bytes(place), limit + limit / 8);  // names, uses and a save that crossed

    const Outcome verified = run({"cache", "verify", place});
    EXPECT_EQ(verified.code, 0) << verified;
    EXPECT_NE(verified.out.find("; 0 damaged, 0 removed"), std::string::npos) << verified;
    const Outcome last = run(args);
    EXPECT_EQ(last.out, run(args_for(kPrompt + " And now something new.")).out);
}

}  // namespace
}  // namespace picolm::testing
