// From the metadata of a file to a tokenizer, and every way in which that can be wrong (case D5).
#include <gtest/gtest.h>

#include <functional>

#include "gguf/gguf.h"
#include "small_vocab.h"

namespace picolm {
namespace {

using testing::SmallVocab;

struct LoadedFile {
    explicit LoadedFile(const GgufWriter& writer)
        : bytes(writer.to_bytes()),
          file(std::move(*GgufFile::parse(bytes, "FILE"))),
          tokenizer(load_tokenizer(file)) {}
    std::vector<uint8_t> bytes;
    GgufFile file;
    Result<std::unique_ptr<Tokenizer>> tokenizer;
};

::testing::AssertionResult refused(const GgufWriter& writer, ErrorKind kind,
                                   std::initializer_list<std::string_view> words) {
    const LoadedFile loaded(writer);
    if (loaded.tokenizer) return ::testing::AssertionFailure() << "was accepted";
    const Error& error = loaded.tokenizer.error();
    bool right = error.kind == kind && error.text.find("FILE") == 0;
    for (const std::string_view word : words) {
        right = right && error.text.find(word) != std::string::npos;
    }
    if (right) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << static_cast<int>(error.kind) << ": " << error.text;
}

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text) {
    return *tokenizer.encode(text, {});
}

TEST(LoadTokenizerTest, DefaultsOfTheKind) {
    const SmallVocab vocab = SmallVocab::standard();
    const LoadedFile loaded(vocab.writer());
    ASSERT_TRUE(loaded.tokenizer) << loaded.tokenizer.error().text;
    const Tokenizer& tokenizer = **loaded.tokenizer;
    EXPECT_EQ(tokenizer.bos(), 1u);
    EXPECT_EQ(tokenizer.eos(), 2u);
    EXPECT_TRUE(tokenizer.add_bos());
    EXPECT_TRUE(tokenizer.trims_first_space());
    EXPECT_EQ(encode(tokenizer, "the"), (std::vector<TokenId>{1, vocab["▁the"]}));
    EXPECT_TRUE(tokenizer.is_end_of_generation(2));
}

TEST(LoadTokenizerTest, EveryKeyIsHeard) {
    SmallVocab vocab = SmallVocab::standard();
    const TokenId begin = vocab.add("<begin>", 0, TokenKind::control);
    const TokenId end = vocab.add("<end>", 0, TokenKind::control);
    const TokenId turn = vocab.add("<turn>", 0, TokenKind::control);
    const TokenId message = vocab.add("<message>", 0, TokenKind::control);
    GgufWriter writer = vocab.writer();
    writer.put_u32("tokenizer.ggml.bos_token_id", begin);
    writer.put_u32("tokenizer.ggml.eos_token_id", end);
    writer.put_u32("tokenizer.ggml.eot_token_id", turn);
    writer.put_u32("tokenizer.ggml.eom_token_id", message);
    writer.put_bool("tokenizer.ggml.add_eos_token", true);
    writer.put_bool("tokenizer.ggml.add_space_prefix", false);
    const LoadedFile loaded(writer);
    ASSERT_TRUE(loaded.tokenizer) << loaded.tokenizer.error().text;
    const Tokenizer& tokenizer = **loaded.tokenizer;
    EXPECT_EQ(encode(tokenizer, " the"), (std::vector<TokenId>{begin, vocab["▁the"], end}));
    EXPECT_FALSE(tokenizer.trims_first_space());
    for (const TokenId id : {end, turn, message, TokenId{2}}) {
        EXPECT_TRUE(tokenizer.is_end_of_generation(id)) << id;
    }
    EXPECT_FALSE(tokenizer.is_end_of_generation(begin));
}

TEST(LoadTokenizerTest, NoBeginningWhenTheFileSaysSo) {
    const SmallVocab vocab = SmallVocab::standard();
    GgufWriter off = vocab.writer();
    off.put_bool("tokenizer.ggml.add_bos_token", false);
    EXPECT_FALSE((*LoadedFile(off).tokenizer)->add_bos());
    GgufWriter none = vocab.writer();
    none.put_u32("tokenizer.ggml.bos_token_id", UINT32_MAX);
    none.put_u32("tokenizer.ggml.eos_token_id", UINT32_MAX);
    const LoadedFile loaded(none);
    ASSERT_TRUE(loaded.tokenizer) << loaded.tokenizer.error().text;
    EXPECT_EQ((*loaded.tokenizer)->bos(), std::nullopt);
    EXPECT_EQ((*loaded.tokenizer)->eos(), std::nullopt);
    EXPECT_FALSE((*loaded.tokenizer)->add_bos());
}

TEST(LoadTokenizerTest, DefaultIdsOnlyForTokensOfThatKind) {
    SmallVocab vocab;
    for (const char* text : {"▁", "a", "b"}) vocab.add(text);
    const LoadedFile loaded(vocab.writer());
    ASSERT_TRUE(loaded.tokenizer) << loaded.tokenizer.error().text;
    EXPECT_EQ((*loaded.tokenizer)->bos(), std::nullopt);
    EXPECT_FALSE((*loaded.tokenizer)->is_end_of_generation(2));
    EXPECT_FALSE((*loaded.tokenizer)->encode("c", {}));
}

TEST(LoadTokenizerTest, Phi3ByTheNameOfTheModel) {
    SmallVocab vocab = SmallVocab::standard();
    vocab.add("<|user|>", 0, TokenKind::control);
    GgufWriter phi = vocab.writer();
    phi.put_string("general.name", "Phi-3-mini");
    const LoadedFile strips(phi);
    const LoadedFile keeps(vocab.writer());
    EXPECT_EQ(encode(**strips.tokenizer, "<|user|>\nthe"),
              encode(**keeps.tokenizer, "<|user|>the"));
    EXPECT_NE(encode(**keeps.tokenizer, "<|user|>\nthe"), encode(**keeps.tokenizer, "<|user|>the"));
}

TEST(LoadTokenizerTest, D5NoTokenizer) {
    GgufWriter writer;
    writer.put_string("general.architecture", "llama");
    EXPECT_TRUE(refused(writer, ErrorKind::corrupt, {"no tokenizer", "tokenizer.ggml.model"}));
    writer.put_string("tokenizer.ggml.model", "llama");
    EXPECT_TRUE(refused(writer, ErrorKind::corrupt, {"tokenizer.ggml.tokens", "missing"}));
    writer.put_strings("tokenizer.ggml.tokens", std::vector<std::string>{"a"});
    EXPECT_TRUE(refused(writer, ErrorKind::corrupt, {"tokenizer.ggml.scores", "missing"}));
    writer.put_f32s("tokenizer.ggml.scores", std::vector<float>{0});
    EXPECT_TRUE(refused(writer, ErrorKind::corrupt, {"tokenizer.ggml.token_type", "missing"}));
    writer.put_i32s("tokenizer.ggml.token_type", std::vector<int32_t>{1});
    EXPECT_TRUE(LoadedFile(writer).tokenizer);
}

TEST(LoadTokenizerTest, D5OtherKindsAreNamed) {
    for (const char* kind : {"gpt2", "bert", "t5", "rwkv", "plamo2", "no_vocab"}) {
        GgufWriter writer;
        writer.put_string("tokenizer.ggml.model", kind);
        EXPECT_TRUE(refused(writer, ErrorKind::unsupported, {kind, "known kinds: llama"}));
    }
    GgufWriter writer;
    writer.put_u32("tokenizer.ggml.model", 1);
    EXPECT_TRUE(refused(writer, ErrorKind::corrupt, {"tokenizer.ggml.model"}));
}

// A file whose token list, scores and types are given by the caller.
GgufWriter with_arrays(const std::function<void(GgufWriter&)>& put) {
    GgufWriter writer;
    writer.put_string("tokenizer.ggml.model", "llama");
    put(writer);
    return writer;
}

TEST(LoadTokenizerTest, D5ArraysOfTheWrongTypeOrLength) {
    const std::vector<std::string> tokens = {"a", "b"};
    const std::vector<float> scores = {0, 0};
    const std::vector<int32_t> types = {1, 1};
    const char* tokens_key = "tokenizer.ggml.tokens";
    const char* scores_key = "tokenizer.ggml.scores";
    const char* types_key = "tokenizer.ggml.token_type";
    EXPECT_TRUE(refused(with_arrays([&](GgufWriter& w) { w.put_i32s(tokens_key, types); }),
                        ErrorKind::corrupt, {tokens_key, "array of strings"}));
    EXPECT_TRUE(refused(with_arrays([&](GgufWriter& w) { w.put_string(tokens_key, "a"); }),
                        ErrorKind::corrupt, {tokens_key, "array of strings"}));
    EXPECT_TRUE(refused(with_arrays([&](GgufWriter& w) {
                            w.put_strings(tokens_key, tokens);
                            w.put_i32s(scores_key, types);
                        }),
                        ErrorKind::corrupt, {scores_key}));
    EXPECT_TRUE(refused(with_arrays([&](GgufWriter& w) {
                            w.put_strings(tokens_key, tokens);
                            w.put_f32s(scores_key, scores);
                            w.put_f32s(types_key, scores);
                        }),
                        ErrorKind::corrupt, {types_key}));
    EXPECT_TRUE(refused(with_arrays([&](GgufWriter& w) {
                            w.put_strings(tokens_key, tokens);
                            w.put_f32s(scores_key, std::vector<float>{0});
                            w.put_i32s(types_key, types);
                        }),
                        ErrorKind::corrupt, {"2 tokens", "1 scores"}));
    EXPECT_TRUE(refused(with_arrays([&](GgufWriter& w) {
                            w.put_strings(tokens_key, tokens);
                            w.put_f32s(scores_key, scores);
                            w.put_i32s(types_key, std::vector<int32_t>{1, 1, 1});
                        }),
                        ErrorKind::corrupt, {"2 tokens", "3 token types"}));
    EXPECT_TRUE(refused(with_arrays([&](GgufWriter& w) {
                            w.put_strings(tokens_key, {});
                            w.put_f32s(scores_key, {});
                            w.put_i32s(types_key, {});
                        }),
                        ErrorKind::corrupt, {"empty"}));
}

TEST(LoadTokenizerTest, D5ByteTokenThatNamesNoByte) {
    SmallVocab vocab = SmallVocab::standard();
    vocab.add("<0x-1>", 0, TokenKind::byte);
    EXPECT_TRUE(refused(vocab.writer(), ErrorKind::corrupt, {"<0x-1>", "byte token"}));
}

TEST(LoadTokenizerTest, D5IdsOutsideTheVocabulary) {
    const SmallVocab vocab = SmallVocab::standard();
    const uint32_t n = static_cast<uint32_t>(vocab.tokens.size());
    for (const char* name : {"bos", "eos", "unknown", "eot", "eom"}) {
        const std::string key = format("tokenizer.ggml.%s_token_id", name);
        for (const uint32_t id : {n, 1u << 31, UINT32_MAX - 1}) {
            GgufWriter writer = vocab.writer();
            writer.put_u32(key, id);
            EXPECT_TRUE(refused(writer, ErrorKind::corrupt, {key, std::to_string(id)}));
        }
        GgufWriter writer = vocab.writer();
        writer.put_string(key, "1");
        EXPECT_TRUE(refused(writer, ErrorKind::corrupt, {key}));
    }
    GgufWriter writer = vocab.writer();
    writer.put_u32("tokenizer.ggml.add_bos_token", 7);
    EXPECT_TRUE(refused(writer, ErrorKind::corrupt, {"add_bos_token"}));
}

}  // namespace
}  // namespace picolm
