// The command line: values (case B6), names of commands, variables, help.
#include "models.h"
#include "process.h"

namespace picolm::testing {
namespace {

struct BadValue {
    const char* option;
    const char* value;
    const char* allowed;  // part of the message
};

class B6 : public ::testing::TestWithParam<BadValue> {};

TEST_P(B6, IsAUsageErrorThatNamesTheOption) {
    const BadValue& bad = GetParam();
    const Outcome o = run({"model.gguf", "-p", "hi", bad.option, bad.value});
    EXPECT_EQ(o.code, 2) << o;
    EXPECT_EQ(o.out, "");
    EXPECT_TRUE(o.says(bad.option)) << o;
    EXPECT_TRUE(o.says(bad.allowed)) << o;
    EXPECT_TRUE(o.says(std::string("not \"") + bad.value + '"')) << o;
    EXPECT_FALSE(o.says("Loading model")) << o;
}

INSTANTIATE_TEST_SUITE_P(
    Options, B6,
    ::testing::Values(
        BadValue{"-t", "nan", "a finite number from 0 up"},
        BadValue{"-t", "inf", "a finite number from 0 up"},
        BadValue{"-t", "-1", "a finite number from 0 up"},
        BadValue{"-t", "1e999", "a finite number from 0 up"},
        BadValue{"-t", "0.8x", "a finite number from 0 up"},
        BadValue{"-k", "NaN", "a number from 0 to 1"}, BadValue{"-k", "2", "a number from 0 to 1"},
        BadValue{"-k", "-0.1", "a number from 0 to 1"}, BadValue{"-k", "", "a number from 0 to 1"},
        BadValue{"--min-p", "1.5", "a number from 0 to 1"},
        BadValue{"--top-k", "-5", "a whole number from 0 to 2147483647"},
        BadValue{"-s", "-1", "a whole number from 0 to 18446744073709551615, or \"random\""},
        BadValue{"-s", "18446744073709551616", "a whole number from 0 to 18446744073709551615"},
        BadValue{"-n", "abc", "a whole number from 0"},
        BadValue{"-n", "-1", "a whole number from 0"},
        BadValue{"-n", "12 ", "a whole number from 0"},
        BadValue{"-n", "0x10", "a whole number from 0"},
        BadValue{"-n", "99999999999999999999", "a whole number from 0"},
        BadValue{"-c", "1048577", "a whole number from 0 to 1048576"},
        BadValue{"-j", "-2", "a whole number from 0 to 65535"},
        BadValue{"-j", "100000", "a whole number from 0 to 65535"},
        BadValue{"--chunk", "0", "a whole number from 1 to 4096"},
        BadValue{"--kv-type", "q5_0", "one of f16, q8_0, q4_0"},
        BadValue{"--kv-type", "", "one of f16, q8_0, q4_0"},
        BadValue{"--kv-type", "q8_0,", "two of them with a comma between"},
        BadValue{"--kv-type", "q8_0,q8_0,f16", "two of them with a comma between"},
        BadValue{"--repeat-penalty", "0", "a number from 1e-06 to 1e+06"},
        BadValue{"--presence-penalty", "-inf", "a number from -1e+06 to 1e+06"},
        BadValue{"--penalty-window", "-1", "a whole number from 0"},
        BadValue{"--cache-limit", "12Q", "a size such as"},
        BadValue{"--cache-limit", "M", "a size such as"},
        BadValue{"--cache-limit", "99999999999999G", "a size such as"}));

TEST(Options, B6_ValuesAtTheEdgeAreTaken) {
    const std::vector<std::vector<std::string>> edges = {
        {"-t", "1e15"}, {"-t", "0"},          {"-k", "0"},   {"-k", "1"},
        {"-j", "0"},    {"-s", "0"},          {"-n", "010"}, {"--cache-limit", "0"},
        {"-c", "0"},    {"--top-k", "100000"}};
    for (const std::vector<std::string>& edge : edges) {
        std::vector<std::string> args = {tiny_model(), "-p", "hi", "-n", "3"};
        args.insert(args.end(), edge.begin(), edge.end());
        const Outcome o = run(args);
        EXPECT_EQ(o.code, 0) << edge[0] << ' ' << edge[1] << o;
    }
    EXPECT_TRUE(run({tiny_model(), "-p", "hi", "-t", "0", "-n", "010"}).says("up to 10 "));
}

TEST(Options, B6_MoreThreadsThanCpusAreCutDownWithANote) {
    const Outcome o = run({tiny_model(), "-p", "hi", "-n", "3", "-j", "500"});
    EXPECT_EQ(o.code, 0) << o;
    EXPECT_TRUE(o.says("Note: -j 500 is more than the ")) << o;
    EXPECT_FALSE(o.says("threads=500")) << o;
}

TEST(Options, B6_AnOptionWithoutItsValueIsAUsageError) {
    const Outcome o = run({tiny_model(), "-p", "hi", "-n"});
    EXPECT_EQ(o.code, 2) << o;
    EXPECT_TRUE(o.says("--n-predict")) << o;
}

TEST(Options, WrongUsageIsNamed) {
    const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
        {{"m.gguf", "-p", "hi", "--nonsense"}, "--nonsense"},
        {{"m.gguf", "other.gguf", "-p", "hi"}, "other.gguf"},
        {{"-p", "hi"}, "MODEL.gguf"},
        {{"m.gguf", "-p", "hi", "--json"}, "--json is not built yet"},
        {{"m.gguf", "-p", "hi", "-f", "x"}, "only one of them"},
        {{"m.gguf", "-p", "hi", "--quiet", "--verbose"}, "only one of them"},
        {{"m.gguf", "-p", "hi", "--cache", ""}, "--cache"},
        {{"m.gguf", "-p", "hi", "--stop", ""}, "--stop"},
        {{"inspect"}, "MODEL.gguf"},
    };
    for (const auto& [args, words] : wrong) {
        const Outcome o = run(args);
        EXPECT_EQ(o.code, 2) << o;
        EXPECT_TRUE(o.says(words)) << words << o;
        EXPECT_EQ(o.out, "") << words;
    }
}

TEST(Options, NoArgumentsGiveTheShortUsage) {
    const Outcome o = run({});
    EXPECT_EQ(o.code, 2);
    EXPECT_EQ(o.out, "");
    EXPECT_TRUE(o.says("Usage: picolm MODEL.gguf")) << o;
}

TEST(Options, HelpAndVersion) {
    const Outcome help = run({"--help"});
    EXPECT_EQ(help.code, 0);
    EXPECT_EQ(help.err, "");
    for (const char* words : {"--cache-limit", "-n,--n-predict", "Exit codes:", "PICOLM_", "130"})
        EXPECT_NE(help.out.find(words), std::string::npos) << words;
    EXPECT_EQ(run({"run", "-h"}).out, help.out);
    EXPECT_NE(run({"inspect", "--help"}).out, help.out);
    const Outcome version = run({"--version"});
    EXPECT_EQ(version.code, 0);
    EXPECT_EQ(version.out.substr(0, 7), "picolm ") << version;
}

TEST(Options, TheLastOfARepeatedOptionCounts) {
    const Outcome o = run({tiny_model(), "-p", "x", "-n", "9", "-p", "hi", "-n", "3"});
    EXPECT_EQ(o.out, run({tiny_model(), "-p", "hi", "-n", "3"}).out);
}

TEST(Options, VariablesStandForOptionsAndTheCommandLineWins) {
    const Outcome expected = run({tiny_model(), "-p", kPrompt, "-t", "0", "-n", "9"});
    const std::vector<std::string> env = {"PICOLM_TEMP=0", "PICOLM_N_PREDICT=9",
                                          "PICOLM_PROMPT=" + kPrompt, "PICOLM_QUIET=1"};
    const Outcome o = run({tiny_model()}, {.env = env});
    EXPECT_EQ(o.out, expected.out);
    EXPECT_EQ(o.err, "");
    const Outcome fewer = run({tiny_model(), "-n", "4", "--verbose"}, {.env = env});
    EXPECT_EQ(fewer.out, run({tiny_model(), "-p", kPrompt, "-t", "0", "-n", "4"}).out);
    EXPECT_TRUE(fewer.says("Kernels:")) << fewer;
    // A prompt on the command line silences both variables that could bring one.
    const TempDir dir;
    write_text(dir.file("p"), kPrompt);
    EXPECT_EQ(run({tiny_model(), "-f", dir.file("p")}, {.env = env}).out, expected.out);
    // The answer to "Once" ends where the variable says.
    const std::string whole = run({tiny_model(), "-p", "Once", "-t", "0", "-n", "30"}).out;
    const std::string stop = whole.substr(8, 5);
    EXPECT_EQ(
        run({tiny_model(), "-p", "Once", "-t", "0", "-n", "30"}, {.env = {"PICOLM_STOP=" + stop}})
            .out,
        whole.substr(0, whole.find(stop)) + "\n");
}

TEST(Options, AWrongVariableIsNamed) {
    const Outcome o = run({tiny_model(), "-p", "hi"}, {.env = {"PICOLM_TOP_P=2"}});
    EXPECT_EQ(o.code, 2) << o;
    EXPECT_TRUE(o.says("PICOLM_TOP_P")) << o;
    EXPECT_TRUE(o.says("a number from 0 to 1")) << o;
    // Not read where the command line says something.
    EXPECT_EQ(
        run({tiny_model(), "-p", "hi", "-n", "2", "-k", "1"}, {.env = {"PICOLM_TOP_P=2"}}).code, 0);
}

TEST(Options, AFileWinsOverTheCommandOfItsName) {
    const TempDir dir;
    for (const char* name : {"inspect", "run"}) {
        std::filesystem::copy_file(tiny_model(), dir.file(name));
        const Outcome o = run({name, "-p", "hi", "-t", "0", "-n", "3"}, {.folder = dir.path()});
        EXPECT_EQ(o.code, 0) << o;
        EXPECT_EQ(o.out, run({tiny_model(), "-p", "hi", "-t", "0", "-n", "3"}).out);
    }
    // A folder is no model.
    const TempDir other;
    std::filesystem::create_directory(other.file("inspect"));
    const Outcome o = run({"inspect", tiny_model()}, {.folder = other.path()});
    EXPECT_EQ(o.code, 0) << o;
    EXPECT_NE(o.out.find("Tensors:"), std::string::npos) << o;
}

}  // namespace
}  // namespace picolm::testing
