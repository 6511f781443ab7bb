// picolm bench: which tests are run, the three forms of the report, limits, interruption. How fast
// anything is, is not tested.
#include <nlohmann/json.hpp>

#include <sstream>

#include "gguf/gguf.h"
#include "models.h"
#include "process.h"

namespace picolm::testing {
namespace {

using Json = nlohmann::json;

Outcome bench(const std::vector<std::string>& options, const Setup& setup = {},
              const std::string& model = tiny_model()) {
    std::vector<std::string> args = {"bench", model, "--seconds", "1", "-r", "2", "-n", "4"};
    args.insert(args.end(), options.begin(), options.end());
    return run(args, setup);
}

Json parsed(const Outcome& o) {
    Json report = Json::parse(o.out, nullptr, false);
    EXPECT_FALSE(report.is_discarded()) << o;
    return report;
}

// "prefill 16 x1": test, tokens, threads.
std::vector<std::string> names_of(const Json& report) {
    std::vector<std::string> names;
    for (const Json& row : report["rows"])
        names.push_back(row["test"].get<std::string>() + ' ' + row["n_tokens"].dump() + " x" +
                        row["threads"].dump());
    return names;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

const std::vector<std::string> kSmall = {"-t",       "1",   "--prefill", "3,16",
                                         "--decode", "0,7", "--warm",    "9"};
const std::vector<std::string> kSmallRows = {"read 0 x1",   "prefill 3 x1", "prefill 16 x1",
                                             "decode 0 x1", "decode 7 x1",  "warm 9 x1"};

std::vector<std::string> small_with(std::vector<std::string> more) {
    more.insert(more.begin(), kSmall.begin(), kSmall.end());
    return more;
}

TEST(Bench, JsonHoldsEveryTestThatWasAskedFor) {
    const Outcome o = bench(small_with({"--format", "json"}));
    ASSERT_EQ(o.code, 0) << o;
    EXPECT_EQ(o.err, "");
    const Json report = parsed(o);
    EXPECT_EQ(names_of(report), kSmallRows);
    const std::map<std::string, std::string> units = {
        {"read", "GB/s"}, {"prefill", "tok/s"}, {"decode", "tok/s"}, {"warm", "ms"}};
    for (const Json& row : report["rows"]) {
        const std::string test = row["test"];
        EXPECT_EQ(row["unit"], units.at(test));
        EXPECT_GE(row["runs"], 1) << row;
        EXPECT_LE(row["runs"], 2) << row;
        EXPECT_EQ(row["samples"].size(), row["runs"]) << row;
        EXPECT_GT(row["min"], 0) << row;
        EXPECT_LE(row["min"], row["median"]) << row;
        EXPECT_LE(row["median"], row["max"]) << row;
        EXPECT_TRUE(row["state"] == "quiet" || row["state"] == "busy") << row;
        EXPECT_EQ(row["read_fraction"].is_null(), test != "decode") << row;
        EXPECT_LE(row["core_speed"], report["machine"]["best_core_speed"]) << row;
    }
    const Json& read = report["rows"][0];
    const Json& decode = report["rows"][3];
    EXPECT_NEAR(decode["read_fraction"].get<double>(),
                decode["median"].get<double>() *
                    report["model"]["weight_bytes_per_token"].get<double>() /
                    (read["max"].get<double>() * 1e9),
                1e-6);
}

TEST(Bench, JsonNamesModelAndMachine) {
    const Json report = parsed(bench(small_with({"--format", "json"})));
    EXPECT_EQ(report["program"], "picolm");
    EXPECT_EQ("picolm " + report["version"].get<std::string>() + '\n', run({"--version"}).out);
    EXPECT_EQ(report["model"]["path"], tiny_model());
    EXPECT_EQ(report["model"]["arch"], "llama");
    EXPECT_EQ(report["model"]["bytes"], std::filesystem::file_size(tiny_model()));
    EXPECT_EQ(report["threads"], Json::parse("[1]"));
    EXPECT_EQ(report["decode_tokens"], 4);
    EXPECT_GT(report["memory"]["peak_resident"], 0);
    EXPECT_GE(report["memory"]["peak_resident"], report["memory"]["peak_anonymous"]);
    EXPECT_EQ(parsed(bench(small_with({"--format", "json"}),
                           {.env = {"PICOLM_ISA=generic"}}))["machine"]["isa"],
              "generic");
}

// Every matrix once, but of the embedding table one row, unless it is the output matrix too.
TEST(Bench, WeightBytesPerTokenAreThoseOfTheMatrices) {
    for (const bool tied : {false, true}) {
        RandomModelSpec spec = tiny_spec();
        spec.tied = tied;
        const std::string path = make_model(spec, tied ? "tied.gguf" : "untied.gguf");
        const Result<GgufFile> file = GgufFile::open(path);
        ASSERT_TRUE(file);
        uint64_t expected = 0;
        for (const TensorInfo& tensor : file->tensors()) {
            if (tensor.name == "token_embd.weight") {
                const uint64_t row = tensor.data.size() / tensor.dims[1];
                expected += row + (tied ? tensor.data.size() : 0);
            } else if (tensor.n_dims == 2) {
                expected += tensor.data.size();
            }
        }
        const Json report = parsed(bench(small_with({"--format", "json"}), {}, path));
        EXPECT_EQ(report["model"]["weight_bytes_per_token"], expected) << tied;
    }
}

TEST(Bench, CsvHasOneLineForEachTest) {
    const Outcome o = bench(small_with({"--format", "csv"}));
    ASSERT_EQ(o.code, 0) << o;
    const std::vector<std::string> lines = lines_of(o.out);
    ASSERT_EQ(lines.size(), kSmallRows.size() + 1) << o;
    EXPECT_EQ(lines[0],
              "test,n_tokens,threads,unit,median,min,max,runs,read_fraction,state,core_speed");
    for (size_t i = 1; i < lines.size(); ++i) {
        EXPECT_EQ(std::count(lines[i].begin(), lines[i].end(), ','), 10) << lines[i];
        // "prefill,16,1,tok/s" -> "prefill 16 x1".
        std::vector<std::string> fields(3);
        std::istringstream line(lines[i]);
        for (std::string& field : fields) std::getline(line, field, ',');
        EXPECT_EQ(fields[0] + ' ' + fields[1] + " x" + fields[2], kSmallRows[i - 1]);
    }
}

TEST(Bench, TheTableIsForPeople) {
    const Outcome o = bench(kSmall);
    ASSERT_EQ(o.code, 0) << o;
    EXPECT_EQ(o.err, "");
    for (const char* words : {"Model: llama", "kernels: ", "prefill 16 ", "decode at 7 ",
                              "warm start 9 ", "GB/s", "tok/s", " ms ", " %", "Peak memory: "})
        EXPECT_NE(o.out.find(words), std::string::npos) << words << o;
}

TEST(Bench, WithoutThreadsEverythingAtTheDefaultAndALittleWithFewer) {
    const Json report = parsed(bench({"--prefill", "8,16", "--decode", "0,7", "--format", "json"}));
    const std::vector<std::string> names = names_of(report);
    const std::vector<uint32_t> threads = report["threads"];
    ASSERT_FALSE(threads.empty());
    const std::string n = " x" + std::to_string(threads[0]);
    ASSERT_EQ(names.size(), 6 + 3 * (threads.size() - 1)) << report;
    EXPECT_EQ(std::vector<std::string>(names.begin(), names.begin() + 6),
              (std::vector<std::string>{"read 0" + n, "prefill 8" + n, "prefill 16" + n,
                                        "decode 0" + n, "decode 7" + n, "warm 256" + n}));
    for (size_t i = 1; i < threads.size(); ++i) {
        EXPECT_EQ(threads[i], 1u << (i - 1));
        EXPECT_EQ(names[3 + 3 * i + 1], "prefill 16 x" + std::to_string(threads[i]));
    }
}

TEST(Bench, TheWarmStartIsMeasuredOnceForSeveralThreadCounts) {
    const Json report = parsed(bench(
        {"-t", "1,1", "--prefill", "none", "--decode", "0", "--warm", "9", "--format", "json"}));
    EXPECT_EQ(names_of(report), (std::vector<std::string>{"read 0 x1", "decode 0 x1", "warm 9 x1",
                                                          "read 0 x1", "decode 0 x1"}));
}

TEST(Bench, NoneLeavesTestsOut) {
    const Json report = parsed(bench(
        {"-t", "1", "--prefill", "none", "--decode", "none", "--warm", "0", "--format", "json"}));
    EXPECT_EQ(names_of(report), std::vector<std::string>{"read 0 x1"});
}

TEST(Bench, WhatDoesNotFitIntoTheContextIsCutWithANote) {
    const Outcome o = bench({"-t", "1", "--prefill", "300,16", "--decode", "2048,255,254", "--warm",
                             "999", "--format", "json"});
    EXPECT_EQ(names_of(parsed(o)),
              (std::vector<std::string>{"read 0 x1", "prefill 16 x1", "prefill 256 x1",
                                        "decode 252 x1", "warm 256 x1"}));
    EXPECT_TRUE(
        o.says("Note: prefill 300 does not fit into the model's context of 256; measured: 256"))
        << o;
    EXPECT_TRUE(
        o.says("Note: decode at 2048 does not fit into the model's context of 256; measured: 252"))
        << o;
}

TEST(Bench, MoreThreadsThanCpusAreCutDownWithANote) {
    const Outcome o = bench(
        {"-t", "60000", "--prefill", "3", "--decode", "none", "--warm", "0", "--format", "csv"});
    EXPECT_EQ(o.code, 0) << o;
    EXPECT_TRUE(o.says("Note: -t 60000 is more than the ")) << o;
    EXPECT_EQ(o.out.find("60000"), std::string::npos) << o;
}

// A context that takes minutes to fill, as the first prompts show.
TEST(Bench, ATestThatWouldTakeTooLongIsSkipped) {
    RandomModelSpec spec = tiny_spec();
    spec.n_embd = 256;
    spec.n_ff = 1024;
    spec.n_ctx = 1 << 17;
    const Outcome o = bench(
        {"-t", "1", "--prefill", "16", "--decode", "0,130000", "--warm", "0", "--format", "json"},
        {}, make_model(spec, "slow.gguf"));
    ASSERT_EQ(o.code, 0) << o;
    const Json report = parsed(o);
    ASSERT_EQ(names_of(report).back(), "decode 130000 x1") << o;
    const Json& skipped = report["rows"].back();
    EXPECT_EQ(skipped["state"], "skipped");
    EXPECT_EQ(skipped["runs"], 0);
    EXPECT_TRUE(skipped["median"].is_null());
    EXPECT_NE(report["rows"][2]["state"], "skipped") << o;
}

TEST(Bench, TheTemporaryCacheIsRemoved) {
    const TempDir dir;
    const Json report =
        parsed(bench(small_with({"--format", "json"}), {.env = {"TMPDIR=" + dir.path()}}));
    EXPECT_EQ(names_of(report), kSmallRows);
    EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(Bench, WithoutATemporaryFolderTheRestIsMeasured) {
    const Outcome o = bench(small_with({"--format", "json"}), {.env = {"TMPDIR=/no/such/folder"}});
    EXPECT_EQ(o.code, 0) << o;
    EXPECT_TRUE(o.says("warning: the warm start is not measured")) << o;
    EXPECT_EQ(names_of(parsed(o)),
              std::vector<std::string>(kSmallRows.begin(), kSmallRows.end() - 1));
}

TEST(Bench, AnInterruptionPrintsWhatThereIs) {
    const Pipe err;
    Child child({"bench", endless_model(), "--seconds", "0", "-r", "10000", "-t", "1", "--prefill",
                 "16,512", "--decode", "999999", "--format", "json"},
                {.err_fd = err.write_end()});
    EXPECT_NE(err.read_some().find("Note: decode at 999999"), std::string::npos);
    child.send(SIGINT);
    const Outcome o = child.wait();
    EXPECT_EQ(o.code, 130) << o;
    EXPECT_EQ(parsed(o)["program"], "picolm");
}

TEST(Bench, WrongUsageIsNamed) {
    const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
        {{"--nonsense"}, "--nonsense"},
        {{"--temp", "0"}, "--temp"},
        {{"--prefill", "0"}, "--prefill: must be whole numbers from 1 to"},
        {{"--prefill", "16,,64"}, "not \"16,,64\""},
        {{"--prefill", "16,"}, "--prefill"},
        {{"--prefill", ""}, "--prefill"},
        {{"--decode", "-1"}, "--decode"},
        {{"--decode", "1 2"}, "--decode"},
        {{"-t", "two"}, "-t/-j/--threads"},
        {{"-r", "0"}, "-r/--runs"},
        {{"-n", "0"}, "-n/--decode-tokens"},
        {{"--format", "xml"}, "table, csv or json"},
        {{"other.gguf"}, "other.gguf"},
    };
    for (const auto& [options, words] : wrong) {
        const Outcome o = bench(options);
        EXPECT_EQ(o.code, 2) << o;
        EXPECT_TRUE(o.says(words)) << words << o;
        EXPECT_EQ(o.out, "") << words;
    }
    EXPECT_EQ(run({"bench"}).code, 2);
    EXPECT_EQ(run({"bench", "/no/such/file.gguf"}).code, 3);
}

TEST(Bench, HelpListsItsOptions) {
    const Outcome help = run({"bench", "--help"});
    EXPECT_EQ(help.code, 0);
    for (const char* words : {"--prefill LIST", "--decode LIST", "--format", "--warm"})
        EXPECT_NE(help.out.find(words), std::string::npos) << words << help;
    EXPECT_NE(run({"--help"}).out.find("picolm bench"), std::string::npos);
}

}  // namespace
}  // namespace picolm::testing
