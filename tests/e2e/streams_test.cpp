// Signals, pipes, terminals and devices at the program's streams (cases B7, D2, item 10).
#include <stdlib.h>
#include <sys/resource.h>

#include "models.h"
#include "process.h"

namespace picolm::testing {
namespace {

std::vector<std::string> endless(const std::string& model, const std::string& cache) {
    return {model, "-p", kPrompt, "-t", "0", "-n", "1000000", "--cache", cache};
}

bool is_cached(const std::string& cache) {
    return run({endless_model(), "-p", kPrompt, "-n", "1", "--cache", cache})
        .says("\nPrefill: 0 tokens");
}

void expect_orderly_end(const Outcome& o, const std::string& out, int code) {
    EXPECT_EQ(o.code, code) << o;
    EXPECT_EQ(out.back(), '\n');
    for (const char* words : {"KV cache saved: ", "Finish reason: cancelled",
                              "\nGeneration: ", "\nTotal: ", "\nMemory: "})
        EXPECT_TRUE(o.says(words)) << words << o;
    EXPECT_FALSE(o.says("picolm: ")) << o;
}

TEST(Streams, ASignalEndsTheAnswerAndTheCacheIsSaved) {
    for (const auto& [signal, code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
        const TempDir dir;
        Pipe pipe;
        Child child(endless(endless_model(), dir.file("c.kvc")), {.out_fd = pipe.write_end()});
        pipe.close_end(1);
        std::string out = pipe.read_some();
        ASSERT_FALSE(out.empty());
        child.send(signal);
        out += pipe.read_all();
        expect_orderly_end(child.wait(), out, code);
        EXPECT_TRUE(is_cached(dir.file("c.kvc")));
    }
}

// A file size limit (SIGXFSZ) is a failed write of the cache, no end of the program.
TEST(Streams, AFileSizeLimitCostsTheCacheOnly) {
    const TempDir dir;
    const std::string cache = dir.file("c.kvc");
    const Outcome free = run({tiny_model(), "-p", kPrompt, "-t", "0", "-n", "5"});
    rlimit old{};
    getrlimit(RLIMIT_FSIZE, &old);
    const rlimit small{2048, old.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    const Outcome o = run({tiny_model(), "-p", kPrompt, "-t", "0", "-n", "5", "--cache", cache});
    setrlimit(RLIMIT_FSIZE, &old);
    EXPECT_EQ(o.code, 0) << o;
    EXPECT_EQ(o.out, free.out);
    EXPECT_TRUE(o.says("cannot save the KV cache")) << o;
    EXPECT_FALSE(o.says("KV cache saved")) << o;
}

TEST(Streams, ASignalReachesAProgramWhoseReaderStalls) {
    for (const auto& [signal, code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
        const TempDir dir;
        Pipe pipe;
        fcntl(pipe.write_end(), F_SETPIPE_SZ, 4096);
        Child child(endless(endless_model(), dir.file("c.kvc")), {.out_fd = pipe.write_end()});
        pipe.close_end(1);
        ASSERT_TRUE(pipe.is_full());
        child.send(signal);
        const Outcome o = child.wait(30);
        EXPECT_EQ(o.code, code) << o;
        EXPECT_TRUE(o.says("\nGeneration: ")) << o;
        EXPECT_TRUE(o.says("Finish reason: cancelled")) << o;
    }
}

TEST(Streams, ASignalDuringPrefillKeepsWhatWasComputed) {
    std::string prompt;
    for (int i = 0; i < 1000; ++i) prompt += kPrompt;
    const TempDir dir;
    write_text(dir.file("prompt"), prompt);
    Pipe err;
    Child child(
        {endless_model(), "-f", dir.file("prompt"), "--chunk", "16", "--cache", dir.file("c.kvc")},
        {.err_fd = err.write_end()});
    err.close_end(1);
    std::string said;
    while (said.find("Prompt: ") == std::string::npos) {
        const std::string part = err.read_some();
        ASSERT_FALSE(part.empty()) << said;
        said += part;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    child.send(SIGINT);
    said += err.read_all();
    const Outcome o = child.wait();
    EXPECT_EQ(o.code, 130) << o;
    EXPECT_EQ(o.out, "");
    EXPECT_NE(said.find("KV cache saved: "), std::string::npos) << said;
    EXPECT_NE(said.find("Finish reason: cancelled"), std::string::npos) << said;
}

TEST(Streams, B7_AClosedPipeEndsTheAnswerAsAPipeWriterShould) {
    const TempDir dir;
    Pipe pipe;
    Child child(endless(endless_model(), dir.file("c.kvc")), {.out_fd = pipe.write_end()});
    pipe.close_end(1);
    ASSERT_FALSE(pipe.read_some().empty());
    pipe.close_end(0);
    const Outcome o = child.wait();
    EXPECT_EQ(o.code, 141) << o;
    EXPECT_TRUE(o.says("KV cache saved: ")) << o;
    EXPECT_FALSE(o.says("picolm: ")) << o;
    EXPECT_FALSE(o.says("warning")) << o;
    EXPECT_TRUE(is_cached(dir.file("c.kvc")));
}

TEST(Streams, AFullDeviceIsAnErrorAndTheCacheIsSaved) {
    const TempDir dir;
    const Outcome o = run({tiny_model(), "-p", kPrompt, "-n", "50", "--cache", dir.file("c.kvc")},
                          {.out = "/dev/full"});
    EXPECT_EQ(o.code, 3) << o;
    EXPECT_TRUE(o.says("picolm: cannot write to standard output: No space left on device")) << o;
    EXPECT_TRUE(o.says("KV cache saved: ")) << o;
    for (const std::vector<std::string>& args :
         {std::vector<std::string>{"inspect", tiny_model()}, {"--help"}})
        EXPECT_EQ(run(args, {.out = "/dev/full"}).code, 3);
}

TEST(Streams, AClosedStandardOutputIsNotMistakenForAFile) {
    const TempDir dir;
    const std::vector<std::string> args = {
        tiny_model(), "-p", kPrompt, "-t", "0", "-n", "20", "--cache", dir.file("c.kvc")};
    const Outcome o = run(args, {.close_out = true});
    EXPECT_EQ(o.code, 3) << o;
    EXPECT_TRUE(o.says("cannot write to standard output")) << o;
    const Outcome next = run(args);
    EXPECT_TRUE(next.says("\nPrefill: 0 tokens")) << next;
    EXPECT_FALSE(next.says("warning")) << next;
}

TEST(Streams, D2_AModelThatShrinksWhileInUseIsOneLine) {
    const TempDir dir;
    const std::string model = dir.file("shrinking.gguf");
    std::filesystem::copy_file(endless_model(), model);
    Pipe pipe;
    Child child(endless(model, dir.file("c.kvc")), {.out_fd = pipe.write_end()});
    pipe.close_end(1);
    ASSERT_FALSE(pipe.read_some().empty());
    std::filesystem::resize_file(model, 4096);
    pipe.read_all();
    const Outcome o = child.wait();
    EXPECT_EQ(o.code, 3) << o;
    EXPECT_TRUE(o.says("picolm: " + model + " cannot be read any more")) << o;
}

TEST(Streams, ATerminalShowsProgressAndErasesIt) {
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    ASSERT_GE(terminal, 0);
    ASSERT_EQ(grantpt(terminal), 0);
    ASSERT_EQ(unlockpt(terminal), 0);
    const int other_end = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
    ASSERT_GE(other_end, 0);
    const Outcome o = Child({tiny_model(), "-p", kPrompt, "-n", "3"}, {.err_fd = other_end}).wait();
    EXPECT_EQ(o.code, 0) << o;
    close(other_end);
    std::string said;
    char bytes[4096];
    for (ssize_t n; (n = read(terminal, bytes, sizeof bytes)) > 0;)
        said.append(bytes, static_cast<size_t>(n));
    close(terminal);
    const size_t shown = said.find("\rPrefill: 0 of ");
    ASSERT_NE(shown, std::string::npos) << said;
    EXPECT_NE(said.find("\r\033[K", shown), std::string::npos) << said;
    // A file is no terminal.
    EXPECT_FALSE(run({tiny_model(), "-p", kPrompt, "-n", "3"}).says("\r"));
}

}  // namespace
}  // namespace picolm::testing
