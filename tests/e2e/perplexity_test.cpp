// picolm perplexity as a user runs it. That the numbers are right is tested in tests/engine and
// tests/golden.
#include <nlohmann/json.hpp>

#include "models.h"
#include "process.h"

namespace picolm::testing {
namespace {

using Json = nlohmann::json;

std::string q4_model() {
    RandomModelSpec spec = tiny_spec();
    spec.type = "Q4_0";
    return make_model(spec, "tiny-q4_0.gguf");
}

// Some hundred tokens.
std::string text(int n_sentences = 12) {
    std::string all;
    for (int i = 0; i < n_sentences; ++i)
        all += kPrompt + " That was number " + std::to_string(i) + ".\n";
    return all;
}

class Perplexity : public ::testing::Test {
  protected:
    TempDir dir;
    std::string file = dir.file("text"), logits = dir.file("saved.logits");

    void SetUp() override { write_text(file, text()); }
    Outcome measure(const std::vector<std::string>& options,
                    const picolm::testing::Setup& setup = {},
                    const std::string& model = tiny_model()) const {
        std::vector<std::string> args = {"perplexity", model, "-f", file, "-c", "64"};
        args.insert(args.end(), options.begin(), options.end());
        return run(args, setup);
    }
    Outcome compare(const std::vector<std::string>& options = {},
                    const std::string& model = tiny_model()) const {
        std::vector<std::string> args = {"perplexity", model, "-f", file, "--kl", logits};
        args.insert(args.end(), options.begin(), options.end());
        return run(args);
    }
    void save() const {
        const Outcome o = measure({"--save-logits", logits});
        ASSERT_EQ(o.code, 0) << o;
    }
    static Json parsed(const Outcome& o) {
        EXPECT_EQ(o.code, 0) << o;
        const Json report = Json::parse(o.out, nullptr, false);
        EXPECT_FALSE(report.is_discarded()) << o;
        return report;
    }
    static void refused(const Outcome& o, int code, const std::string& words) {
        EXPECT_EQ(o.code, code) << o;
        EXPECT_EQ(o.out, "") << o;
        EXPECT_TRUE(o.says(words)) << words << o;
    }
    size_t files_in_folder() const {
        const std::filesystem::directory_iterator all(dir.path());
        return static_cast<size_t>(std::distance(begin(all), end(all)));
    }
};

TEST_F(Perplexity, TheResultGoesToStandardOutput) {
    const Outcome o = measure({});
    ASSERT_EQ(o.code, 0) << o;
    for (const char* words : {"Perplexity ", " +/- ", "tokens scored", "windows of 64 tokens"})
        EXPECT_NE(o.out.find(words), std::string::npos) << words << o;
    EXPECT_TRUE(o.says("Text: ")) << o;
    EXPECT_EQ(measure({"--quiet"}).err, "");
    EXPECT_EQ(measure({"--quiet"}).out, o.out);
    EXPECT_TRUE(measure({"--verbose"}).says("Memory plan for 64 positions"));
}

TEST_F(Perplexity, JsonHoldsTheNumbersOfTheTable) {
    const Json report = parsed(measure({"--format", "json"}));
    EXPECT_EQ(report["windows"]["n_ctx"], 64);
    EXPECT_EQ(report["windows"]["scored_each"], 31);
    const int n = report["windows"]["done"];
    EXPECT_EQ(report["windows"]["planned"], n);
    EXPECT_EQ(n, report["text_tokens"].get<int>() / 64);
    EXPECT_EQ(report["tokens_scored"], 31 * n);
    EXPECT_GT(report["perplexity"], 1);
    EXPECT_GT(report["perplexity_error"], 0);
    EXPECT_TRUE(report["kl"].is_null());
    char shown[32];
    snprintf(shown, sizeof shown, "%.4f", report["perplexity"].get<double>());
    EXPECT_NE(measure({}).out.find(shown), std::string::npos) << shown;
}

TEST_F(Perplexity, ThreadsChunksAndLevelsChangeNoByte) {
    const std::string expected = measure({"--format", "json"}).out;
    for (const char* threads : {"1", "2"})
        for (const char* chunk : {"1", "7", "64", "500"})
            EXPECT_EQ(measure({"--format", "json", "-j", threads, "--chunk", chunk}).out, expected)
                << threads << ' ' << chunk;
    EXPECT_EQ(measure({"--format", "json"}, {.env = {"PICOLM_ISA=generic"}}).out, expected);
}

TEST_F(Perplexity, TheTextMayComeFromStandardInput) {
    const std::string expected = measure({}).out;
    EXPECT_EQ(run({"perplexity", tiny_model(), "-c", "64"}, {.input = text()}).out, expected);
    EXPECT_EQ(run({"perplexity", tiny_model(), "-c", "64", "-f", "-"}, {.input = text()}).out,
              expected);
}

TEST_F(Perplexity, VariablesStandForOptions) {
    const Outcome o = run(
        {"perplexity", tiny_model()},
        {.env = {"PICOLM_FILE=" + file, "PICOLM_CTX=64", "PICOLM_FORMAT=json", "PICOLM_QUIET=1"}});
    EXPECT_EQ(o.out, measure({"--format", "json"}).out);
    EXPECT_EQ(o.err, "");
    refused(measure({}, {.env = {"PICOLM_STRIDE=x"}}), 2, "PICOLM_STRIDE");
}

TEST_F(Perplexity, WindowsAreTheModelsContextOr512) {
    write_text(file, text(40));
    const Json tiny = parsed(run({"perplexity", tiny_model(), "-f", file, "--format", "json"}));
    EXPECT_EQ(tiny["windows"]["n_ctx"], 256);
    const Json large = parsed(run({"perplexity", endless_model(), "-f", file, "--format", "json"}));
    EXPECT_EQ(large["windows"]["n_ctx"], 512);
    const Outcome o = run({"perplexity", tiny_model(), "-f", file, "-c", "1000"});
    EXPECT_EQ(o.code, 0) << o;
    EXPECT_TRUE(o.says("Note: -c 1000 is more than the model's context, which is used: 256")) << o;
    EXPECT_EQ(parsed(measure({"--windows", "3", "--format", "json"}))["tokens_scored"], 93);
    const Json strided = parsed(measure({"--stride", "16", "--windows", "5", "--format", "json"}));
    EXPECT_EQ(strided["tokens_scored"], 80);
    EXPECT_EQ(strided["windows"]["step"], 16);
}

TEST_F(Perplexity, ATextThatIsTooShortSaysWhatIsNeeded) {
    write_text(file, kPrompt);
    const Outcome o = run({"perplexity", tiny_model(), "-f", file});
    refused(o, 2, "the text is too short: it has ");
    EXPECT_TRUE(o.says("two windows of 256 need 512")) << o;
    write_text(file, "");
    refused(run({"perplexity", tiny_model(), "-f", file}), 2, "too short: it has ");
}

TEST_F(Perplexity, WrongUsageIsNamed) {
    refused(measure({"--stride", "65"}), 2, "--stride 65 is longer than a window of 64");
    refused(measure({"-c", "3"}), 2, "at least 4 tokens");
    refused(measure({"--format", "csv"}), 2, "table or json");
    refused(measure({"--kl", "a", "--save-logits", "b"}), 2, "only one of them");
    refused(measure({"--kl", ""}), 2, "--kl");
    refused(run({"perplexity", tiny_model(), "-f", dir.file("none")}), 3,
            "cannot read the text from");
    refused(measure({}, {}, dir.file("none.gguf")), 3, "none.gguf");
}

TEST_F(Perplexity, ARunHasNoDivergenceFromItself) {
    save();
    EXPECT_EQ(files_in_folder(), 2u);
    const Json report = parsed(compare({"--format", "json"}));
    EXPECT_EQ(report["windows"]["n_ctx"], 64);
    const Json& kl = report["kl"];
    EXPECT_EQ(kl["perplexity"], report["perplexity"]);
    EXPECT_EQ(kl["perplexity_ratio"], 1);
    EXPECT_EQ(kl["log_probability_change"], 0);
    EXPECT_EQ(kl["same_best"], 1);
    EXPECT_LT(kl["max"], 1e-7);
    EXPECT_GT(kl["mean"], -1e-12);
    const Outcome table = compare();
    for (const char* words : {"ratio of the perplexities                1.000000 +/- 0.000000",
                              "KL divergence", "median", "99 %", "largest", "100.000 %"})
        EXPECT_NE(table.out.find(words), std::string::npos) << words << table;
    // A link to the file does as well.
    std::filesystem::create_symlink(logits, dir.file("link"));
    logits = dir.file("link");
    EXPECT_EQ(parsed(compare({"--format", "json"}))["kl"]["mean"], kl["mean"]);
}

TEST_F(Perplexity, AnotherQuantisationIsCompared) {
    save();
    const Json report = parsed(compare({"--format", "json"}, q4_model()));
    const Json& kl = report["kl"];
    EXPECT_GT(kl["mean"], 1e-4);
    EXPECT_LE(kl["median"], kl["p99"]);
    EXPECT_LE(kl["p99"], kl["max"]);
    EXPECT_LT(kl["same_best"], 1);
    EXPECT_NEAR(kl["perplexity_ratio"].get<double>(),
                report["perplexity"].get<double>() / kl["perplexity"].get<double>(), 1e-9);
    EXPECT_EQ(parsed(compare({"--format", "json", "-j", "1", "--chunk", "5"}, q4_model())), report);
}

TEST_F(Perplexity, WhatCannotBeComparedIsRefused) {
    save();
    refused(compare({"-c", "32"}), 2, "windows of 64 tokens");
    refused(compare({"--stride", "16"}), 2, "leave out -c and --stride");
    EXPECT_EQ(compare({"-c", "64"}).code, 0);
    // Fewer windows are the first ones of the file.
    EXPECT_EQ(parsed(compare({"--windows", "2", "--format", "json"}))["kl"]["same_best"], 1);
    EXPECT_EQ(compare({"--windows", "9999"}).out, compare().out);
    RandomModelSpec other = tiny_spec();
    other.n_vocab = 600;
    refused(compare({}, make_model(other, "vocab600.gguf")), 2,
            "a vocabulary of 512 tokens, this model has 600");
    RandomModelSpec narrow = tiny_spec();
    narrow.n_ctx = 32;
    refused(compare({}, make_model(narrow, "ctx32.gguf")), 2, "this model's context is 32");
    write_text(file, "But " + text());
    refused(compare(), 2, "other tokens");
    write_text(file, text(6));
    refused(compare(), 2, "other tokens");
}

TEST_F(Perplexity, DamagedFilesAreNamed) {
    save();
    const std::string whole = read_text(logits);
    const auto with = [&](std::string bytes, int code, const std::string& words) {
        write_text(logits, bytes);
        const Outcome o = compare();
        refused(o, code, words);
        EXPECT_TRUE(o.says(logits)) << o;
    };
    with(whole.substr(0, whole.size() - 1), 4, "it is cut off");
    with(whole.substr(0, 30), 4, "it is cut off");
    with(whole + "x", 4, "it goes on behind its end");
    std::string bad = whole;
    bad[bad.size() / 2] ^= 1;
    with(bad, 4, "the record at byte");
    bad = whole;
    bad[8] = 9;
    with(bad, 5, "version 9");
    with("{\"a\": \"text\"}", 5, "not a file of saved logits");
    with("", 5, "not a file of saved logits");
    std::filesystem::remove(logits);
    refused(compare(), 3, "cannot open");
}

TEST_F(Perplexity, SavingReplacesOnlyWhatItHasSaved) {
    save();
    const std::string whole = read_text(logits);
    write_text(logits + ".picolm-saving", whole.substr(0, 100));  // of a run that was killed
    save();
    EXPECT_EQ(read_text(logits), whole);
    EXPECT_EQ(files_in_folder(), 2u);
    const std::string model = dir.file("model.gguf");
    std::filesystem::copy_file(tiny_model(), model);
    refused(measure({"--save-logits", model}), 2, "left alone");
    EXPECT_EQ(read_text(model), read_text(tiny_model()));
    refused(measure({"--save-logits", dir.path()}), 2, "left alone");
    refused(measure({"--save-logits", dir.file("no/folder")}), 3, "cannot create");
}

TEST_F(Perplexity, AnInterruptedRunSaysWhatItHasAndSavesNothing) {
    write_text(file, text(20000));
    Pipe err;
    Child child({"perplexity", endless_model(), "-f", file, "--save-logits", logits},
                {.err_fd = err.write_end()});
    err.close_end(1);
    std::string said;
    for (std::string part = err.read_some(); !part.empty(); part = err.read_some()) {
        said += part;
        if (said.find("Saving ") != std::string::npos) break;
    }
    child.send(SIGINT);
    said += err.read_all();
    const Outcome o = child.wait();
    EXPECT_EQ(o.code, 130) << o << said;
    EXPECT_NE(said.find("no logits were saved"), std::string::npos) << said;
    EXPECT_TRUE(o.out.empty() || o.out.find("interrupted: ") != std::string::npos) << o;
    EXPECT_EQ(files_in_folder(), 1u);
}

TEST_F(Perplexity, ASpelledControlTokenIsOnlyText) {
    write_text(file, text() + "</s><s>");
    const int n = parsed(measure({"--format", "json"}))["text_tokens"];
    write_text(file, text());
    EXPECT_GT(n, parsed(measure({"--format", "json"}))["text_tokens"].get<int>() + 2);
}

TEST_F(Perplexity, HelpStatesTheConvention) {
    const Outcome o = run({"perplexity", "--help"});
    EXPECT_EQ(o.code, 0);
    for (const char* words : {"second half", "llama.cpp", "--stride", "--kl", "--save-logits",
                              "-j,--threads", "--chunk", "Exit codes"})
        EXPECT_NE(o.out.find(words), std::string::npos) << words;
}

}  // namespace
}  // namespace picolm::testing
