// --cache as a user sees it: the lines, the answers, and paths that are no cache (cases E).
#include <fcntl.h>
#include <sys/stat.h>

#include "models.h"
#include "process.h"

namespace picolm::testing {
namespace {

class Cache : public ::testing::Test {
  protected:
    // Greedy, 12 tokens, unless `more` says otherwise.
    Outcome plain(const std::string& prompt, const std::vector<std::string>& more = {}) const {
        std::vector<std::string> args = {tiny_model(), "-p", prompt, "-t", "0", "-n", "12"};
        args.insert(args.end(), more.begin(), more.end());
        return run(args);
    }
    Outcome cached(const std::string& prompt, std::vector<std::string> more = {}) const {
        more.insert(more.end(), {"--cache", path_});
        return plain(prompt, more);
    }
    static int number_after(const Outcome& o, const std::string& words) {
        const size_t at = o.err.find(words);
        return at == std::string::npos ? -1 : std::stoi(o.err.substr(at + words.size()));
    }

    TempDir dir_;
    std::string path_ = dir_.file("prompt.kvc");
};

TEST_F(Cache, TheSecondRunSkipsPrefillSaysSoAndPrintsTheSame) {
    const Outcome first = cached(kPrompt);
    ASSERT_EQ(first.code, 0) << first;
    const std::string n = std::to_string(number_after(first, "Prompt: "));
    EXPECT_TRUE(first.says("\nKV cache saved: " + n + " positions to " + path_ + "\n")) << first;
    EXPECT_TRUE(first.says("Reused 0 of " + n + " prompt tokens\n")) << first;
    EXPECT_FALSE(first.says("KV cache loaded")) << first;
    EXPECT_FALSE(first.says("Skipping")) << first;

    const Outcome second = cached(kPrompt);
    EXPECT_TRUE(second.says("\nKV cache loaded: " + n + " positions from " + path_ + "\n"))
        << second;
    EXPECT_TRUE(second.says("\nSkipping " + n + " cached prompt tokens\n")) << second;
    EXPECT_TRUE(second.says("\nReused " + n + " of " + n + " prompt tokens\n")) << second;
    EXPECT_TRUE(second.says("\nPrefill: 0 tokens in ")) << second;
    EXPECT_TRUE(second.says(" [all from the cache]\n")) << second;
    EXPECT_FALSE(second.says("KV cache saved")) << second;
    EXPECT_EQ(second.out, first.out);
    EXPECT_EQ(second.out, plain(kPrompt).out);
}

TEST_F(Cache, OneFileHoldsOneKvTypeAtATimeAndSaysSo) {
    for (const char* types : {"q8_0,q8_0", "q4_0,q4_0", "q8_0,q4_0", "f16,f16"}) {
        const std::vector<std::string> more = {"--kv-type", types};
        const Outcome first = cached(kPrompt, more);
        ASSERT_EQ(first.code, 0) << first;
        EXPECT_TRUE(first.says("Reused 0 of ")) << first;
        if (types != std::string("q8_0,q8_0")) {
            EXPECT_TRUE(first.says("kv: ")) << first;
            EXPECT_TRUE(first.says(std::string(" there, ") + types + " here")) << first;
        }
        const Outcome second = cached(kPrompt, more);
        EXPECT_TRUE(second.says("\nPrefill: 0 tokens in ")) << second;
        EXPECT_EQ(second.out, first.out);
        EXPECT_EQ(second.out, plain(kPrompt, more).out);
    }
}

TEST_F(Cache, E1_OtherPromptsOnOneFileAnswerAsWithoutIt) {
    const std::vector<std::string> prompts = {
        kPrompt,
        kPrompt + " Say it twice.",
        kPrompt.substr(0, 90),
        "Something else entirely.",
        kPrompt,
        kPrompt.substr(0, 90) + "Now it differs from here on.",
        "S",
    };
    for (const std::string& prompt : prompts) {
        const Outcome o = cached(prompt);
        EXPECT_EQ(o.code, 0) << o;
        EXPECT_EQ(o.out, plain(prompt).out) << prompt;
        EXPECT_GE(number_after(o, "\nReused "), 0) << o;
    }
}

TEST_F(Cache, E1_ALongerPromptReusesAllOfTheShorterOne) {
    const int n = number_after(cached(kPrompt), "Prompt: ");
    const Outcome o = cached(kPrompt + " And why?");
    EXPECT_EQ(number_after(o, "\nReused "), n) << o;
    EXPECT_TRUE(o.says("; the cache ends at token " + std::to_string(n) + "\n")) << o;
    EXPECT_EQ(number_after(o, "\nPrefill: "), number_after(o, "Prompt: ") - n) << o;
}

TEST_F(Cache, E1_APrefixOfASavedPromptComputesOnlyItsLastToken) {
    cached(kPrompt + " And why? And since when?");
    const Outcome o = cached(kPrompt);
    const int n = number_after(o, "Prompt: ");
    EXPECT_EQ(number_after(o, "\nReused "), n - 1) << o;
    EXPECT_TRUE(o.says("the last one was computed again")) << o;
    EXPECT_TRUE(o.says("the cache goes on to token ")) << o;
    EXPECT_FALSE(o.says("KV cache saved")) << o;
    EXPECT_EQ(o.out, plain(kPrompt).out);
}

TEST_F(Cache, E2_ThreeEqualRunsGiveThreeEqualAnswers) {
    for (const std::vector<std::string>& how : {std::vector<std::string>{"-t", "0"},
                                                {"-t", "0.9", "-s", "5"},
                                                {"-t", "1.5", "-j", "1"}}) {
        const std::string expected = plain(kPrompt, how).out;
        for (int i = 0; i < 3; ++i) EXPECT_EQ(cached(kPrompt, how).out, expected);
    }
}

TEST_F(Cache, E3_APathThatIsNoCacheIsLeftAlone) {
    const std::string expected = plain(kPrompt).out;
    const std::string text = "my diary\nmore of it\n";
    write_text(dir_.file("diary.txt"), text);
    std::filesystem::create_directory(dir_.file("folder"));
    for (const std::string& path :
         {std::string("/dev/full"), dir_.file("folder"), dir_.file("diary.txt")}) {
        const Outcome o = plain(kPrompt, {"--cache", path});
        EXPECT_EQ(o.code, 0) << o;
        EXPECT_EQ(o.out, expected);
        EXPECT_TRUE(o.says("warning: ")) << o;
        EXPECT_FALSE(o.says("KV cache saved")) << o;
    }
    EXPECT_EQ(read_text(dir_.file("diary.txt")), text);
    struct stat info;
    ASSERT_EQ(stat("/dev/full", &info), 0);
    EXPECT_TRUE(S_ISCHR(info.st_mode));
    EXPECT_TRUE(std::filesystem::is_empty(dir_.file("folder")));
}

TEST_F(Cache, E3_ADamagedFileIsAWarningAndTheRightAnswer) {
    const std::string expected = plain(kPrompt).out;
    cached(kPrompt);
    const std::string whole = read_text(path_);
    for (size_t at : {size_t{3}, size_t{70}, whole.size() / 2, whole.size() - 100}) {
        std::string bytes = whole;
        bytes[at] = static_cast<char>(bytes[at] ^ 0x5a);
        write_text(path_, bytes);
        const Outcome o = cached(kPrompt);
        EXPECT_EQ(o.code, 0) << at << o;
        EXPECT_EQ(o.out, expected) << at;
        std::filesystem::remove(path_);
    }
    write_text(path_, "");
    EXPECT_EQ(cached(kPrompt).out, expected);
    EXPECT_TRUE(cached(kPrompt).says("\nPrefill: 0 tokens"));
}

TEST_F(Cache, E4_AnotherModelOfTheSameShapeIsRefusedWithTheReason) {
    cached(kPrompt);
    RandomModelSpec spec = tiny_spec();
    spec.seed = 43;
    const std::string other = make_model(spec, "other.gguf");
    const std::vector<std::string> args = {other, "-p", kPrompt, "-t", "0", "-n", "12"};
    std::vector<std::string> with = args;
    with.insert(with.end(), {"--cache", path_});
    const Outcome o = run(with);
    EXPECT_EQ(o.out, run(args).out);
    EXPECT_TRUE(o.says("belongs to another model or setting")) << o;
    EXPECT_TRUE(o.says("Reused 0 of ")) << o;
}

TEST_F(Cache, E6_SeedsWithAndWithoutTheCacheAgree) {
    const std::vector<std::string> rest = {"-t", "1", "-n", "30", "--repeat-penalty", "1.2", "-s"};
    const auto seeded = [&](const char* seed) {
        std::vector<std::string> more = rest;
        more.push_back(seed);
        return more;
    };
    cached(kPrompt);
    const std::string one = cached(kPrompt, seeded("1")).out;
    EXPECT_NE(one, cached(kPrompt, seeded("2")).out);
    EXPECT_EQ(one, plain(kPrompt, seeded("1")).out);
}

TEST_F(Cache, E7_ARepeatedPromptWritesNothing) {
    cached(kPrompt);
    const std::string before = read_text(path_);
    for (int i = 0; i < 5; ++i) EXPECT_FALSE(cached(kPrompt).says("KV cache saved"));
    EXPECT_EQ(read_text(path_), before);
}

TEST_F(Cache, E9_AContextSmallerThanWhatIsSavedUsesWhatFits) {
    std::string text = kPrompt;
    while (text.size() < 4 * kPrompt.size() / 3) text += " More to say.";
    cached(text);
    const Outcome o = cached(kPrompt.substr(0, 60), {"-c", "50", "-n", "4"});
    EXPECT_EQ(o.code, 0) << o;
    EXPECT_GT(number_after(o, "\nReused "), 5) << o;
    EXPECT_TRUE(o.says("what lies beyond the context of 50 was not loaded")) << o;
    EXPECT_EQ(o.out, plain(kPrompt.substr(0, 60), {"-c", "50", "-n", "4"}).out);
}

TEST_F(Cache, E10_WhatStandsBeforeAClockIsReused) {
    const size_t at = kPrompt.find("10:15");
    std::string later = kPrompt;
    later.replace(at, 5, "11:42");
    cached(kPrompt);
    const Outcome o = cached(later);
    const int before = number_after(plain(kPrompt.substr(0, at - 4)), "Prompt: ");
    EXPECT_GE(number_after(o, "\nReused "), before - 2) << o;
    EXPECT_TRUE(o.says("; prompt and cache part at token ")) << o;
    EXPECT_EQ(o.out, plain(later).out);
    // Both branches are in the file now.
    EXPECT_TRUE(cached(kPrompt).says("\nPrefill: 0 tokens"));
    EXPECT_TRUE(cached(later).says("\nPrefill: 0 tokens"));
}

TEST_F(Cache, ALimitThatHoldsNothingIsNoError) {
    const Outcome o = cached(kPrompt, {"--cache-limit", "1K"});
    EXPECT_EQ(o.code, 0) << o;
    EXPECT_EQ(o.out, plain(kPrompt).out);
    EXPECT_FALSE(o.says("KV cache saved")) << o;
    EXPECT_TRUE(!std::filesystem::exists(path_) || std::filesystem::file_size(path_) <= 1024);
}

TEST_F(Cache, StrictIdentityIsAnIdentityOfItsOwn) {
    cached(kPrompt);
    EXPECT_TRUE(cached(kPrompt, {"--cache-strict"}).says("Reused 0 of "));
    const Outcome o = cached(kPrompt, {"--cache-strict"});
    EXPECT_TRUE(o.says("\nPrefill: 0 tokens")) << o;
    EXPECT_EQ(o.out, plain(kPrompt).out);
}

}  // namespace
}  // namespace picolm::testing
