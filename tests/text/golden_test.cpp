// Real vocabularies, and what the reference engine makes of them.
#include <gtest/gtest.h>
#include <pthread.h>
#include <time.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/format.h"
#include "gguf/gguf.h"
#include "support.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace picolm {
namespace {

using testing::golden_dir;
using testing::kNoGolden;
using testing::read_text;
using Ids = std::vector<TokenId>;

constexpr Tokenizer::EncodeOptions kPlain{.add_special = false, .parse_special = false};
constexpr Tokenizer::EncodeOptions kParsed{.add_special = false, .parse_special = true};

class GoldenTokenizerTest : public ::testing::Test {
  protected:
    void SetUp() override {
        if (golden_dir().empty()) GTEST_SKIP() << kNoGolden;
        load("vocab-llama-spm.gguf");
    }
    void load(const std::string& name) {
        auto file = GgufFile::open(golden_dir() + "/" + name);
        ASSERT_TRUE(file) << file.error().text;
        file_ = std::move(*file);
        auto tokenizer = load_tokenizer(file_);
        ASSERT_TRUE(tokenizer) << tokenizer.error().text;
        tokenizer_ = std::move(*tokenizer);
    }
    Ids encode(std::string_view text, Tokenizer::EncodeOptions options = kPlain) const {
        return *tokenizer_->encode(text, options);
    }
    // U+2581 in a text is a space to this kind of tokenizer.
    static std::string without_marks(std::string_view text) {
        std::string result;
        while (!text.empty()) {
            const bool mark = text.starts_with("▁");
            result += mark ? ' ' : text[0];
            text.remove_prefix(mark ? 3 : 1);
        }
        return result;
    }
    void expect_golden_cases(const std::string& name) {
        const auto golden = nlohmann::json::parse(read_text(golden_dir() + "/" + name));
        ASSERT_EQ(golden["cases"].size(), 30u);
        for (const auto& item : golden["cases"]) {
            const std::string text = item["text"];
            EXPECT_EQ(encode(text, {true, false}), item["ids_add_special"].get<Ids>()) << text;
            EXPECT_EQ(encode(text, {true, true}), item["ids_add_special_parse_special"].get<Ids>())
                << text;
            EXPECT_EQ(encode(text), item["ids_plain"].get<Ids>()) << text;
            const std::string same = without_marks(text);
            EXPECT_EQ(tokenizer_->decode(item["ids_plain"].get<Ids>()), same);
            if (text.find("<unk>") != std::string::npos) continue;  // stands for any text
            EXPECT_EQ(tokenizer_->decode(encode(text, kParsed), true), same);
        }
    }

    GgufFile file_;
    std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(GoldenTokenizerTest, A1SpacesAndLineFeeds) {
    EXPECT_EQ(encode("Hello"), (Ids{15043}));
    EXPECT_EQ(encode(" Hello"), (Ids{29871, 15043}));
    EXPECT_EQ(encode("  Hello"), (Ids{259, 15043}));
    EXPECT_EQ(encode("    Hello\n    Hello"), (Ids{268, 15043, 13, 1678, 15043}));
    EXPECT_EQ(encode(""), Ids{});
    EXPECT_EQ(encode("\t\n"), (Ids{29871, 12, 13}));
    EXPECT_EQ(encode(" ("), (Ids{29871, 313}));
}

TEST_F(GoldenTokenizerTest, A2ByteFallback) {
    const std::string text = " this is 🦙.cpp";
    EXPECT_EQ(encode(text), (Ids{29871, 445, 338, 29871, 243, 162, 169, 156, 29889, 8223}));
    EXPECT_EQ(tokenizer_->decode(encode(text)), text);
}

TEST_F(GoldenTokenizerTest, A4ControlTokens) {
    EXPECT_EQ(encode("</s>", kParsed), (Ids{2}));
    EXPECT_EQ(encode("<s>", kParsed), (Ids{1}));
    EXPECT_EQ(encode("<s>not special</s>", kParsed), (Ids{1, 451, 4266, 2}));
    EXPECT_EQ(encode("<s>not special</s>"),
              (Ids{529, 29879, 29958, 1333, 4266, 829, 29879, 29958}));
}

TEST_F(GoldenTokenizerTest, A6OneBeginning) {
    EXPECT_EQ(encode("<s>Hello", {false, true}), (Ids{1, 15043}));
    EXPECT_EQ(encode("Hello", {true, true}), (Ids{1, 15043}));
    EXPECT_EQ(tokenizer_->bos(), 1u);
    EXPECT_TRUE(tokenizer_->add_bos());
}

TEST_F(GoldenTokenizerTest, A8CharacterOverFourTokens) {
    StreamDecoder decoder(*tokenizer_, true);
    std::vector<std::string> pieces;
    for (const TokenId id : Ids{243, 162, 169, 156, 29889}) pieces.push_back(decoder.push(id));
    EXPECT_EQ(pieces, (std::vector<std::string>{"", "", "", "🦙", "."}));
}

TEST_F(GoldenTokenizerTest, EndOfGeneration) {
    EXPECT_EQ(tokenizer_->eos(), 2u);
    EXPECT_TRUE(tokenizer_->is_end_of_generation(2));
    EXPECT_FALSE(tokenizer_->is_end_of_generation(1));
    EXPECT_FALSE(tokenizer_->is_end_of_generation(15043));
    EXPECT_EQ(tokenizer_->n_vocab(), 32000u);
}

TEST_F(GoldenTokenizerTest, ThirtyStringsOfTheLlamaVocabulary) {
    expect_golden_cases("tokens-vocab-llama-spm.json");
}

TEST_F(GoldenTokenizerTest, ThirtyStringsOfStories260K) {
    load("stories260K-f32.gguf");
    expect_golden_cases("tokens-stories260K.json");
}

TEST_F(GoldenTokenizerTest, PiecesOfStories260K) {
    load("stories260K-f32.gguf");
    const auto golden =
        nlohmann::json::parse(read_text(golden_dir() + "/tokens-stories260K.json"))["pieces_hex"];
    ASSERT_EQ(golden.size(), tokenizer_->n_vocab());
    for (TokenId id = 0; id < golden.size(); ++id) {
        std::string hex;
        for (const char c : tokenizer_->token_bytes(id, true)) {
            hex += format("%02x", static_cast<uint8_t>(c));
        }
        EXPECT_EQ(hex, golden[id].get<std::string>()) << id;
    }
}

TEST_F(GoldenTokenizerTest, UpstreamsOwnStrings) {
    const std::string mark = "\n__ggml_vocab_test__\n";
    std::string texts = read_text(golden_dir() + "/vocab-llama-spm.inp.txt");
    std::istringstream lines(read_text(golden_dir() + "/vocab-llama-spm.out.txt"));
    size_t n = 0;
    for (size_t at = 0; at < texts.size(); ++n) {
        const size_t end = std::min(texts.find(mark, at), texts.size());
        const std::string text = texts.substr(at, end - at);
        at = end + mark.size();
        std::string line;
        if (!std::getline(lines, line)) break;  // the last mark is followed by nothing
        std::istringstream numbers(line);
        Ids expected;
        for (TokenId id; numbers >> id;) expected.push_back(id);
        EXPECT_EQ(encode(text), expected) << text;
        EXPECT_EQ(tokenizer_->decode(expected), text);
    }
    EXPECT_GT(n, 40u);
}

std::string english(size_t n) {
    const std::string_view sentence =
        "Lily's mom said, \"Let's go to the park.\" In 1984, she didn't know what to do; the "
        "quick brown fox jumps over the lazy dog, again and again.\n";
    std::string text;
    while (text.size() < n) text += sentence;
    return text.substr(0, n);
}

double thread_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// One call on a thread with a stack of 256 KiB; returns its seconds of processor time.
double seconds_to_encode(const Tokenizer& tokenizer, const std::string& text, Ids& ids) {
    struct Job {
        const Tokenizer& tokenizer;
        const std::string& text;
        Ids& ids;
        double seconds;
    } job{tokenizer, text, ids, 0};
    const auto run = [](void* argument) -> void* {
        Job& j = *static_cast<Job*>(argument);
        const double start = thread_seconds();
        j.ids = *j.tokenizer.encode(j.text, kPlain);
        j.seconds = thread_seconds() - start;
        return nullptr;
    };
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 << 10);
    pthread_t thread;
    EXPECT_EQ(pthread_create(&thread, &attributes, run, &job), 0);
    pthread_join(thread, nullptr);
    pthread_attr_destroy(&attributes);
    return job.seconds;
}

TEST_F(GoldenTokenizerTest, A5LongRuns) {
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    const double limit = 1;
#else
    const double limit = 20;
#endif
    const struct {
        const char* name;
        std::string text;
    } cases[] = {{"Z", std::string(131072, 'Z')},
                 {"A", std::string(43000, 'A')},
                 {"spaces", std::string(1 << 20, ' ')},
                 {"english", english(1 << 20)}};
    for (const auto& c : cases) {
        Ids ids;
        const double seconds = seconds_to_encode(*tokenizer_, c.text, ids);
        EXPECT_LT(seconds, limit) << c.name;
        RecordProperty(std::string(c.name) + "_ms", static_cast<int>(seconds * 1000));
        EXPECT_EQ(tokenizer_->decode(ids), c.text) << c.name;
    }
}

}  // namespace
}  // namespace picolm
