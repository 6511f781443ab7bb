// Answering prompts: sources of the prompt, sampling, limits and ends (cases A6, A7, B1-B5, E6).
#include "models.h"
#include "process.h"

namespace picolm::testing {
namespace {

std::vector<std::string> greedy(const std::string& model, const std::string& prompt, int n) {
    return {model, "-p", prompt, "-t", "0", "-n", std::to_string(n)};
}

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// The number in front of " tokens, generating".
int n_prompt_tokens(const Outcome& o) {
    const size_t at = o.err.find("Prompt: ");
    return at == std::string::npos ? -1 : std::stoi(o.err.substr(at + 8));
}

TEST(Run, TheTrainedModelContinuesTheGoldenText) {
    if (golden_dir().empty()) GTEST_SKIP() << kNoGolden;
    const Outcome o = run(greedy(golden_dir() + "/stories260K-f32.gguf", "Once upon a time", 130));
    ASSERT_EQ(o.code, 0) << o;
    const std::string golden =
        ", there was a little girl named Lily. She loved to play outside in the park. One day, she "
        "saw a big, red ball. She wanted to play with it, but it was too high.\nLily's mom said, "
        "\"Lily, let's go to the park.\" Lily was sad and didn't know what to do. She said, \"I "
        "want "
        "to play with your ball, but I can't find it.\"";
    EXPECT_EQ(o.out.substr(0, golden.size()), golden);
    EXPECT_TRUE(o.says("Prompt: 5 tokens, generating up to 130 (temp=0.00, top_p=0.90, threads="))
        << o;
}

TEST(Run, PrintsTheStatisticsOfTheOldProgram) {
    const Outcome o = run(greedy(tiny_model(), kPrompt, 8));
    ASSERT_EQ(o.code, 0) << o;
    for (const char* line :
         {"Loading model: ", "\n---\n", "\nPrefill: ", " tokens in ", " tok/s)\n",
          "\nGeneration: 8 tokens", "\nTotal: ", " MB runtime state (FP16 KV cache)\n",
          "\nTime to first token: ", " file-backed\n",
          "\nFinish reason: length (8 tokens were asked for)\n"})
        EXPECT_TRUE(o.says(line)) << line << o;
    EXPECT_FALSE(o.says("Kernels:")) << o;
}

TEST(Run, TheStatisticsAndThePlanNameTheKvTypes) {
    std::vector<std::string> args = greedy(tiny_model(), kPrompt, 8);
    args.insert(args.end(), {"--verbose", "--kv-type", "q8_0,q4_0"});
    const Outcome o = run(args);
    ASSERT_EQ(o.code, 0) << o;
    EXPECT_TRUE(o.says(" MB runtime state (q8_0,q4_0 KV cache)\n")) << o;
    EXPECT_TRUE(o.says("q8_0,q4_0; come as positions are used\n")) << o;
    const Outcome shown = run({"inspect", tiny_model(), "--kv-type", "q4_0"});
    EXPECT_NE(shown.out.find("q4_0,q4_0; come as"), std::string::npos) << shown;
}

TEST(Run, QuietSaysNothingAndVerboseMore) {
    const std::vector<std::string> args = greedy(tiny_model(), kPrompt, 8);
    const Outcome plain = run(args);
    const Outcome quiet = run(args + std::vector<std::string>{"--quiet"});
    const Outcome verbose = run(args + std::vector<std::string>{"--verbose"});
    EXPECT_EQ(quiet.err, "");
    EXPECT_EQ(quiet.out, plain.out);
    EXPECT_EQ(verbose.out, plain.out);
    EXPECT_TRUE(verbose.says("Kernels: ")) << verbose;
    EXPECT_TRUE(verbose.says("Memory plan for ")) << verbose;
}

TEST(Run, OneLineFeedFollowsTheAnswer) {
    const std::string ten = run(greedy(tiny_model(), kPrompt, 10)).out;
    const std::string eleven = run(greedy(tiny_model(), kPrompt, 11)).out;
    ASSERT_GT(ten.size(), 1u);
    EXPECT_EQ(ten.back(), '\n');
    EXPECT_EQ(eleven.substr(0, ten.size() - 1), ten.substr(0, ten.size() - 1));
}

TEST(Run, ThePromptMayComeFromOptionFileOrStandardInput) {
    const TempDir dir;
    write_text(dir.file("prompt"), kPrompt);
    const std::vector<std::string> rest = {"-t", "0", "-n", "12"};
    const std::vector<std::string> model = {tiny_model()};
    const std::string expected = run(greedy(tiny_model(), kPrompt, 12)).out;
    EXPECT_EQ(run(model + rest + std::vector<std::string>{"-f", dir.file("prompt")}).out, expected);
    EXPECT_EQ(run(model + rest, {.input = kPrompt}).out, expected);
    EXPECT_EQ(run(model + rest + std::vector<std::string>{"-f", "-"}, {.input = kPrompt}).out,
              expected);
    EXPECT_EQ(run(std::vector<std::string>{"run"} + model + rest, {.input = kPrompt}).out,
              expected);
    // The last line feed belongs to the prompt.
    EXPECT_NE(n_prompt_tokens(run(model + rest, {.input = kPrompt + "\n"})),
              n_prompt_tokens(run(model + rest, {.input = kPrompt})));
}

TEST(Run, TextThatLooksLikeSyntaxIsAPrompt) {
    for (const char* prompt : {"{}", "%%", "[a,b]", "-n", "--help", "\xff\xfe"}) {
        const Outcome by_option = run(greedy(tiny_model(), prompt, 6));
        const Outcome by_input =
            run({tiny_model(), "-t", "0", "-n", "6"}, {.input = std::string(prompt)});
        EXPECT_EQ(by_option.code, 0) << prompt << by_option;
        EXPECT_EQ(n_prompt_tokens(by_option), n_prompt_tokens(by_input)) << prompt;
        EXPECT_EQ(by_option.out, by_input.out) << prompt;
    }
}

TEST(Run, A7_NulBytesAndBrokenUtf8OnStandardInputAreKept) {
    const std::vector<std::string> args = {tiny_model(), "-t", "0", "-n", "6"};
    using namespace std::string_literals;
    const Outcome cut = run(args, {.input = "ab"});
    const Outcome whole = run(args, {.input = "ab\0cd"s});
    const Outcome broken = run(args, {.input = "ab\xC3(\xF0\x9F"s});
    EXPECT_EQ(whole.code, 0) << whole;
    EXPECT_GE(n_prompt_tokens(whole), n_prompt_tokens(cut) + 2);
    EXPECT_GE(n_prompt_tokens(broken), n_prompt_tokens(cut) + 3);
}

TEST(Run, A6_ExactlyOneBosAlsoWhenThePromptBringsIt) {
    const std::vector<std::string> args = greedy(tiny_model(), "<s>" + kPrompt, 6);
    const Outcome o = run(args);
    const Outcome own = run(args + std::vector<std::string>{"--no-bos"});
    EXPECT_TRUE(o.says("warning: the prompt begins with <s> itself")) << o;
    EXPECT_FALSE(own.says("warning")) << own;
    EXPECT_EQ(n_prompt_tokens(o), n_prompt_tokens(own));
    EXPECT_EQ(o.out, own.out);
    const Outcome plain = run(greedy(tiny_model(), kPrompt, 6));
    const Outcome without =
        run(greedy(tiny_model(), kPrompt, 6) + std::vector<std::string>{"--no-bos"});
    EXPECT_EQ(n_prompt_tokens(plain), n_prompt_tokens(without) + 1);
}

TEST(Run, B1_APromptLongerThanTheContextIsRefusedWithBothNumbers) {
    const Outcome o = run(greedy(tiny_model(), kPrompt, 4) + std::vector<std::string>{"-c", "8"});
    EXPECT_EQ(o.code, 2) << o;
    EXPECT_EQ(o.out, "");
    const int n = n_prompt_tokens(o);
    EXPECT_GT(n, 8);
    EXPECT_TRUE(
        o.says("prompt is too long: " + std::to_string(n) + " tokens, maximum context length is 8"))
        << o;
    EXPECT_FALSE(o.says("Prefill:")) << o;
}

TEST(Run, B1_APromptThatJustFitsGivesOneToken) {
    const int n = n_prompt_tokens(run(greedy(tiny_model(), kPrompt, 1)));
    const Outcome o =
        run(greedy(tiny_model(), kPrompt, 9) + std::vector<std::string>{"-c", std::to_string(n)});
    EXPECT_EQ(o.code, 0) << o;
    EXPECT_TRUE(o.says("Generation: 1 tokens")) << o;
    EXPECT_TRUE(o.says("length (the context of " + std::to_string(n) + " is full)")) << o;
}

TEST(Run, B2_MoreTokensThanFitEndAsLength) {
    const Outcome o = run({tiny_model(), "-p", kPrompt, "-t", "0", "-n", "32768", "-c", "120"});
    EXPECT_EQ(o.code, 0) << o;
    EXPECT_TRUE(o.says("Finish reason: length (the context of 120 is full)")) << o;
}

TEST(Run, B2_AContextBeyondTheModelsIsCutDown) {
    const Outcome o =
        run(greedy(tiny_model(), kPrompt, 4) + std::vector<std::string>{"-c", "4096"});
    EXPECT_EQ(o.code, 0) << o;
    EXPECT_TRUE(o.says("Note: -c 4096 is more than the model's context, which is used: 256")) << o;
}

TEST(Run, B3_NoPartOfAStopTextIsPrinted) {
    const std::string answer = run(greedy(tiny_model(), kPrompt, 40)).out;
    ASSERT_GT(answer.size(), 30u);
    const std::string stop = answer.substr(11, 9);
    const size_t at = answer.find(stop);
    const Outcome o = run(greedy(tiny_model(), kPrompt, 40) +
                          std::vector<std::string>{"--stop", "never seen", "--stop", stop});
    EXPECT_EQ(o.out, answer.substr(0, at) + "\n");
    EXPECT_TRUE(o.says("Finish reason: stop (a stop text came)")) << o;
    // What turns out to be no stop is released.
    const Outcome other =
        run(greedy(tiny_model(), kPrompt, 40) + std::vector<std::string>{"--stop", stop + "\x01"});
    EXPECT_EQ(other.out, answer);
    // Brackets and commas are text.
    EXPECT_EQ(run(greedy(tiny_model(), kPrompt, 40) +
                  std::vector<std::string>{"--stop", "[" + stop + ",x]"})
                  .out,
              answer);
}

TEST(Run, B4_AnEndTokenStopsAndIsNotPrinted) {
    bool seen = false;
    for (int seed = 1; seed <= 30 && !seen; ++seed) {
        const Outcome o = run({tiny_model(), "-p", "Once", "-t", "1e15", "-k", "1", "-n", "250",
                               "-s", std::to_string(seed)});
        ASSERT_EQ(o.code, 0) << o;
        EXPECT_EQ(o.out.find("</s>"), std::string::npos);
        seen = o.says("Finish reason: stop (the model ended its answer)");
    }
    EXPECT_TRUE(seen);
}

TEST(Run, B5_NoTokensAskedForWarmsTheCacheUp) {
    const TempDir dir;
    const std::vector<std::string> cache = {"--cache", dir.file("c.kvc")};
    const Outcome o = run(greedy(tiny_model(), kPrompt, 0) + cache);
    EXPECT_EQ(o.code, 0) << o;
    EXPECT_EQ(o.out, "");
    EXPECT_TRUE(o.says("KV cache saved: ")) << o;
    const Outcome next = run(greedy(tiny_model(), kPrompt, 4) + cache);
    EXPECT_TRUE(next.says("Prefill: 0 tokens")) << next;
}

TEST(Run, B5_AnEmptyPromptIsAnError) {
    const TempDir dir;
    write_text(dir.file("empty"), "");
    for (const Outcome& o : {run({tiny_model(), "-p", ""}), run({tiny_model()}),
                             run({tiny_model(), "-f", dir.file("empty")})}) {
        EXPECT_EQ(o.code, 2) << o;
        EXPECT_TRUE(o.says("the prompt is empty")) << o;
        EXPECT_EQ(o.out, "");
    }
    const Outcome missing = run({tiny_model(), "-f", dir.file("missing")});
    EXPECT_EQ(missing.code, 3) << missing;
    EXPECT_TRUE(missing.says("cannot read the prompt from " + dir.file("missing"))) << missing;
}

TEST(Run, E6_SeedsChooseTheAnswer) {
    const std::vector<std::string> args = {tiny_model(), "-p", kPrompt, "-n", "30", "-s"};
    const std::string one = run(args + std::vector<std::string>{"1"}).out;
    EXPECT_EQ(run(args + std::vector<std::string>{"1"}).out, one);
    EXPECT_NE(run(args + std::vector<std::string>{"2"}).out, one);
    const std::string largest = run(args + std::vector<std::string>{"18446744073709551615"}).out;
    EXPECT_NE(largest, run(args + std::vector<std::string>{"4294967295"}).out);
}

TEST(Run, ARandomSeedIsPrintedAndGivesTheAnswerAgain) {
    const std::vector<std::string> args = {tiny_model(), "-p", kPrompt, "-n", "30", "-s"};
    const Outcome o = run(args + std::vector<std::string>{"random"});
    const size_t at = o.err.find("Seed: ");
    ASSERT_NE(at, std::string::npos) << o;
    const std::string seed = o.err.substr(at + 6, o.err.find('\n', at) - at - 6);
    EXPECT_EQ(run(args + std::vector<std::string>{seed}).out, o.out);
}

TEST(Run, OneAnswerForEveryThreadCountChunkAndLevel) {
    const std::vector<std::string> args = {tiny_model(), "-p", kPrompt, "-n", "40", "-s", "7"};
    const Outcome expected = run(args);
    ASSERT_EQ(expected.code, 0) << expected;
    for (const char* n : {"1", "2", "3", "4"})
        EXPECT_EQ(run(args + std::vector<std::string>{"-j", n}).out, expected.out) << n;
    for (const char* n : {"1", "7", "64"})
        EXPECT_EQ(run(args + std::vector<std::string>{"--chunk", n}).out, expected.out) << n;
    EXPECT_EQ(run(args, {.env = {"PICOLM_ISA=generic"}}).out, expected.out);
}

TEST(Run, AnUnknownLevelIsRefusedWithTheList) {
    const Outcome o = run(greedy(tiny_model(), kPrompt, 4), {.env = {"PICOLM_ISA=avx9000"}});
    EXPECT_EQ(o.code, 2) << o;
    EXPECT_TRUE(o.says("avx9000")) << o;
    EXPECT_TRUE(o.says("generic")) << o;
    EXPECT_EQ(o.out, "");
}

}  // namespace
}  // namespace picolm::testing
