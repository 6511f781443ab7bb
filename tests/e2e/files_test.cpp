// Model files as people hand them over (case D1), and what inspect shows.
#include "models.h"
#include "process.h"

namespace picolm::testing {
namespace {

Outcome run_on(const std::string& path) {
    return run({path, "-p", "hi", "-n", "3"});
}

bool is_one_line(const Outcome& o) {
    const size_t at = o.err.find("picolm: ");
    return at != std::string::npos && o.err.find('\n', at) == o.err.size() - 1;
}

TEST(Files, D1_AWrongFileIsNamedForWhatItIs) {
    using namespace std::string_literals;
    const TempDir dir;
    const std::vector<std::pair<std::string, std::string>> files = {
        {"<!DOCTYPE html><html><body>404</body></html>", "HTML"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "Git LFS pointer"},
        {"PK\x03\x04 some zip bytes", "zip"},
        {"lmgg\x01\0\0\0"s, "GGML"},
        {"\x40\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\"}}"s, "safetensors"},
        {"just a text\n", "this is a text file"},
    };
    for (const auto& [bytes, words] : files) {
        write_text(dir.file("model.gguf"), bytes);
        const Outcome o = run_on(dir.file("model.gguf"));
        EXPECT_EQ(o.code, 5) << words << o;
        EXPECT_TRUE(o.says(words)) << words << o;
        EXPECT_TRUE(o.says("model.gguf")) << o;
        EXPECT_TRUE(is_one_line(o)) << o;
        EXPECT_EQ(o.out, "");
        EXPECT_EQ(run({"inspect", dir.file("model.gguf")}).code, 5);
    }
}

TEST(Files, D1_NoFileAndNoRegularFile) {
    const TempDir dir;
    for (const std::string& path :
         {dir.file("missing.gguf"), dir.path(), std::string("/dev/null")}) {
        const Outcome o = run_on(path);
        EXPECT_EQ(o.code, 3) << o;
        EXPECT_TRUE(o.says(path)) << o;
        EXPECT_TRUE(is_one_line(o)) << o;
    }
}

TEST(Files, D2_ACutFileSaysWhatIsMissing) {
    const TempDir dir;
    const std::string whole = read_text(tiny_model());
    for (const size_t size : {whole.size() / 10, whole.size() / 2, whole.size() - 1}) {
        write_text(dir.file("cut.gguf"), whole.substr(0, size));
        const Outcome o = run_on(dir.file("cut.gguf"));
        EXPECT_EQ(o.code, 4) << size << o;
        EXPECT_TRUE(is_one_line(o)) << o;
    }
}

TEST(Files, InspectShowsWhatIsInside) {
    const Outcome o = run({"inspect", tiny_model(), "--ctx", "100"});
    ASSERT_EQ(o.code, 0) << o;
    EXPECT_EQ(o.err, "");
    for (const char* words :
         {"GGUF version 3", "Architecture: llama", "n_embd 64", "heads 4, KV heads 2",
          "BOS 1 \"<s>\"", "llama.context_length", "blk.1.ffn_down.weight", "128 x 64", "Q8_0",
          "Memory plan for 100 positions", "levels usable here:", "generic", "CPUs allowed"})
        EXPECT_NE(o.out.find(words), std::string::npos) << words << o;
}

TEST(Files, InspectShowsAModelThatCannotBeRun) {
    RandomModelSpec spec = tiny_spec();
    spec.arch = "mamba9";
    const Outcome o = run({"inspect", make_model(spec, "mamba.gguf")});
    EXPECT_EQ(o.code, 5) << o;
    EXPECT_NE(o.out.find("mamba9.block_count"), std::string::npos) << o;
    EXPECT_NE(o.out.find("blk.1.ffn_down.weight"), std::string::npos) << o;
    EXPECT_TRUE(o.says("cannot be run")) << o;
    EXPECT_TRUE(o.says("mamba9")) << o;
}

TEST(Files, NamesFromAFileCannotSteerTheTerminal) {
    RandomModelSpec spec = tiny_spec();
    spec.name =
        "evil\x1b]0;title\x07 \xC2\x9B"
        "31m";
    const std::string model = make_model(spec, "evil.gguf");
    const Outcome inspected = run({"inspect", model});
    EXPECT_EQ(inspected.code, 0) << inspected;
    EXPECT_NE(inspected.out.find("evil?"), std::string::npos);
    const Outcome answered = run_on(model);
    EXPECT_TRUE(answered.says("evil?")) << answered;
    for (const std::string& text : {inspected.out, answered.err}) {
        EXPECT_EQ(text.find('\x1b'), std::string::npos);
        EXPECT_EQ(text.find('\x07'), std::string::npos);
        EXPECT_EQ(text.find("\xC2\x9B"), std::string::npos);
    }
}

}  // namespace
}  // namespace picolm::testing
