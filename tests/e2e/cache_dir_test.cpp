// --cache-dir and picolm cache as a user sees them.
#include <sys/stat.h>

#include "models.h"
#include "nlohmann/json.hpp"
#include "process.h"

namespace picolm::testing {
namespace {

namespace fs = std::filesystem;

class CacheDir : public ::testing::Test {
  protected:
    Outcome plain(const std::string& prompt, const std::vector<std::string>& more = {}) const {
        std::vector<std::string> args = {tiny_model(), "-p", prompt, "-t", "0", "-n", "12"};
        args.insert(args.end(), more.begin(), more.end());
        return run(args);
    }
    Outcome cached(const std::string& prompt, std::vector<std::string> more = {}) const {
        more.insert(more.end(), {"--cache-dir", path_});
        return plain(prompt, more);
    }
    Outcome cache(std::vector<std::string> args) const {
        args.insert(args.begin(), "cache");
        return run(args);
    }
    static int number_after(const Outcome& o, const std::string& words) {
        const size_t at = o.err.find(words);
        return at == std::string::npos ? -1 : std::stoi(o.err.substr(at + words.size()));
    }

    TempDir dir_;
    std::string path_ = dir_.file("prompts");
};

TEST_F(CacheDir, TheSecondRunSkipsPrefillAndPrintsTheSame) {
    const Outcome first = cached(kPrompt);
    ASSERT_EQ(first.code, 0) << first;
    const std::string n = std::to_string(number_after(first, "Prompt: "));
    EXPECT_TRUE(first.says("\nKV cache saved: " + n + " positions to " + path_ + "\n")) << first;
    const Outcome second = cached(kPrompt);
    EXPECT_TRUE(second.says("\nKV cache loaded: " + n + " positions from " + path_ + "\n"))
        << second;
    EXPECT_TRUE(second.says("\nSkipping " + n + " cached prompt tokens\n")) << second;
    EXPECT_EQ(second.out, first.out);
    EXPECT_EQ(second.out, plain(kPrompt).out);
}

TEST_F(CacheDir, E1_OtherPromptsAnswerAsWithoutIt) {
    for (const std::string& prompt :
         {kPrompt, kPrompt + " Say it twice.", kPrompt.substr(0, 90), std::string("Else."), kPrompt,
          kPrompt.substr(0, 90) + "Now it differs.", std::string("S")}) {
        const Outcome o = cached(prompt);
        EXPECT_EQ(o.code, 0) << o;
        EXPECT_EQ(o.out, plain(prompt).out) << prompt;
    }
    const Outcome verified = cache({"verify", path_});
    EXPECT_EQ(verified.code, 0) << verified;
    EXPECT_NE(verified.out.find("; 0 damaged, 0 removed"), std::string::npos) << verified;
}

TEST_F(CacheDir, TheVariableNamesItAndTheCommandLineWins) {
    picolm::testing::Setup setup;
    setup.env = {"PICOLM_CACHE_DIR=" + path_};
    const std::vector<std::string> args = {tiny_model(), "-p", kPrompt, "-n", "2"};
    EXPECT_TRUE(run(args, setup).says("KV cache saved"));
    EXPECT_TRUE(run(args, setup).says("KV cache loaded"));
    std::vector<std::string> other = args;
    other.insert(other.end(), {"--cache", dir_.file("p.kvc")});
    EXPECT_TRUE(run(other, setup).says("positions to " + dir_.file("p.kvc")));
    other.insert(other.end(), {"--cache-dir", path_});
    const Outcome both = run(other);
    EXPECT_EQ(both.code, 2) << both;
    EXPECT_TRUE(both.says("only one of them")) << both;
}

TEST_F(CacheDir, ReadOnlyWritesNothing) {
    cached(kPrompt);
    const auto count = [&] { return std::distance(fs::recursive_directory_iterator(path_), {}); };
    const auto before = count();
    const auto usage = fs::exists(path_ + "/usage");
    const Outcome hit = cached(kPrompt, {"--cache-ro"});
    EXPECT_TRUE(hit.says("KV cache loaded")) << hit;
    const Outcome miss = cached("Something else.", {"--cache-ro"});
    EXPECT_EQ(miss.code, 0) << miss;
    EXPECT_FALSE(miss.says("KV cache saved")) << miss;
    EXPECT_EQ(count(), before);
    EXPECT_EQ(fs::exists(path_ + "/usage"), usage);
    const Outcome file = plain(kPrompt, {"--cache", dir_.file("no.kvc"), "--cache-ro"});
    EXPECT_EQ(file.code, 0) << file;
    EXPECT_FALSE(fs::exists(dir_.file("no.kvc")));
}

TEST_F(CacheDir, E3_WhatIsNoCacheIsLeftAlone) {
    const std::string expected = plain(kPrompt).out;
    fs::create_directory(dir_.file("docs"));
    write_text(dir_.file("docs") + "/letter.txt", "a letter");
    for (const std::string& path : {dir_.file("docs"), dir_.file("docs") + "/letter.txt",
                                    std::string("/dev/full"), std::string("/proc/no/where")}) {
        const Outcome o = plain(kPrompt, {"--cache-dir", path});
        EXPECT_EQ(o.code, 0) << o;
        EXPECT_EQ(o.out, expected);
        EXPECT_TRUE(o.says("warning: ")) << o;
    }
    EXPECT_EQ(read_text(dir_.file("docs") + "/letter.txt"), "a letter");
    EXPECT_EQ(std::distance(fs::directory_iterator(dir_.file("docs")), {}), 1);
}

TEST_F(CacheDir, ADamagedRecordIsAWarningAndIsRepaired) {
    const Outcome first = cached(kPrompt);
    for (const auto& entry : fs::recursive_directory_iterator(path_)) {
        if (!entry.is_regular_file() || entry.path().filename().string().size() != 32) continue;
        std::string text = read_text(entry.path());
        if (text.size() < 1000) continue;
        text[text.size() / 2] ^= 1;
        write_text(entry.path(), text);
    }
    const Outcome keep = cache({"verify", path_, "--keep"});
    EXPECT_EQ(keep.code, 4) << keep;
    const Outcome o = cached(kPrompt);
    EXPECT_EQ(o.code, 0) << o;
    EXPECT_TRUE(o.says(" is damaged")) << o;
    EXPECT_EQ(o.out, first.out);
    EXPECT_EQ(cache({"verify", path_, "--keep"}).code, 0);
    const Outcome again = cached(kPrompt);
    EXPECT_TRUE(again.says("[all from the cache]")) << again;
}

TEST_F(CacheDir, StatisticsForMachines) {
    const std::string stats = dir_.file("stats.json");
    const auto statistics = [&] { return nlohmann::json::parse(read_text(stats)); };
    const Outcome first = cached(kPrompt, {"--stats-json", stats});
    ASSERT_EQ(first.code, 0) << first;
    const int n = number_after(first, "Prompt: ");
    auto json = statistics();
    EXPECT_EQ(json["prompt"]["tokens"], n);
    EXPECT_EQ(json["prompt"]["reused"], 0);
    EXPECT_EQ(json["answer"]["tokens"], 12);
    EXPECT_EQ(json["answer"]["finish_reason"], "length");
    EXPECT_EQ(json["cache"]["hits"], 0);
    EXPECT_EQ(json["cache"]["tokens_saved"], n);
    EXPECT_GT(json["cache"]["bytes_written"], 0);
    cached(kPrompt, {"--stats-json", stats});
    json = statistics();
    EXPECT_EQ(json["prompt"]["reused"], n);
    EXPECT_EQ(json["cache"]["hits"], 1);
    EXPECT_EQ(json["cache"]["tokens_reused"], n);
    EXPECT_GT(json["cache"]["bytes_read"], 0);
    EXPECT_EQ(json["cache"]["bytes_written"], 0);
    const Outcome lost = cached(kPrompt, {"--stats-json", dir_.file("no/where.json")});
    EXPECT_EQ(lost.code, 0) << lost;
    EXPECT_TRUE(lost.says("warning: the statistics are lost")) << lost;
}

TEST_F(CacheDir, PromptsAreListedShownAndRemoved) {
    cached(kPrompt);
    cached("Another prompt, about the weather.");
    const Outcome list = cache({"ls", path_, "--text", tiny_model()});
    EXPECT_EQ(list.code, 0) << list;
    EXPECT_NE(list.out.find("Another prompt"), std::string::npos) << list;
    const auto json = nlohmann::json::parse(cache({"ls", path_, "--json"}).out);
    ASSERT_EQ(json.size(), 2u);
    const std::string id = json[0]["id"].get<std::string>().substr(0, 10);
    const Outcome text = cache({"ls", path_, id, "--text", tiny_model()});
    EXPECT_NE(text.out.find("Another prompt, about the weather."), std::string::npos) << text;
    EXPECT_EQ(cache({"rm", path_}).code, 2);
    EXPECT_EQ(cache({"rm", path_, "0000000000"}).code, 2);
    EXPECT_EQ(cache({"rm", path_, id}).code, 0);
    EXPECT_EQ(nlohmann::json::parse(cache({"ls", path_, "--json"}).out).size(), 1u);
    EXPECT_TRUE(cached(kPrompt).says("[all from the cache]"));
    EXPECT_EQ(cache({"trim", path_, "0"}).code, 0);
    EXPECT_EQ(nlohmann::json::parse(cache({"stat", path_, "--json"}).out)["records"], 0);
}

TEST_F(CacheDir, ExportedAndImportedElsewhereItIsUsed) {
    const Outcome first = cached(kPrompt);
    const std::string file = dir_.file("take-away.kvc"), other = dir_.file("other");
    const Outcome out = cache({"export", path_, file});
    ASSERT_EQ(out.code, 0) << out;
    const Outcome from_file = plain(kPrompt, {"--cache", file, "--cache-ro"});
    EXPECT_TRUE(from_file.says("[all from the cache]")) << from_file;
    EXPECT_EQ(from_file.out, first.out);
    ASSERT_EQ(cache({"import", other, file}).code, 0);
    const Outcome from_other = plain(kPrompt, {"--cache-dir", other});
    EXPECT_TRUE(from_other.says("[all from the cache]")) << from_other;
    EXPECT_EQ(from_other.out, first.out);
    EXPECT_EQ(cache({"export", path_}).code, 2);
    EXPECT_EQ(cache({"import", path_, dir_.file("absent.kvc")}).code, 3);
    EXPECT_EQ(cache({"frobnicate", path_}).code, 2);
    EXPECT_EQ(cache({"trim", path_, "much"}).code, 2);
    EXPECT_EQ(cache({"stat", path_, "more"}).code, 2);
}

TEST_F(CacheDir, LookingAfterWhatIsNoCacheIsRefused) {
    fs::create_directory(dir_.file("docs"));
    write_text(dir_.file("docs") + "/letter.txt", "a letter");
    for (const std::string& place : {dir_.file("docs"), dir_.file("docs") + "/letter.txt"}) {
        for (const std::vector<std::string>& args : {std::vector<std::string>{"ls", place},
                                                     {"stat", place},
                                                     {"verify", place},
                                                     {"rm", place, "--all"},
                                                     {"trim", place, "1"},
                                                     {"export", place, dir_.file("out.kvc")}}) {
            const Outcome o = cache(args);
            EXPECT_EQ(o.code, 2) << args[0] << " " << place << o;
            EXPECT_TRUE(o.says("not a KV cache")) << o;
        }
    }
    EXPECT_EQ(std::distance(fs::directory_iterator(dir_.file("docs")), {}), 1);
    EXPECT_FALSE(fs::exists(dir_.file("out.kvc")));
}

TEST_F(CacheDir, NoVariableRemovesPrompts) {
    cached(kPrompt);
    picolm::testing::Setup setup;
    setup.env = {"PICOLM_ALL=1"};
    EXPECT_EQ(run({"cache", "rm", path_}, setup).code, 2);
    EXPECT_TRUE(cached(kPrompt).says("[all from the cache]"));
}

}  // namespace
}  // namespace picolm::testing
