// What reaches a terminal, an event or a JSON string is whole UTF-8 characters (case A8).
#include "text/stream_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"
#include "small_vocab.h"

namespace picolm {
namespace {

using testing::SmallVocab;

// Written apart from the decoder: U+FFFD for the longest start of a character, else for one byte.
std::string repaired(std::string_view text) {
    std::string result;
    while (!text.empty()) {
        size_t n = utf8_char_length(text);
        result += n > 0 ? text.substr(0, n) : kUtf8Replacement;
        for (size_t k = 3; n == 0 && k > 0; --k) {
            const std::string_view start = text.substr(0, k);
            if (start.size() == k && utf8_incomplete_length(start) == k) n = k;
        }
        text.remove_prefix(std::max<size_t>(n, 1));
    }
    return result;
}

bool valid_utf8(std::string_view text) {
    while (!text.empty()) {
        const size_t n = utf8_char_length(text);
        if (n == 0) return false;
        text.remove_prefix(n);
    }
    return true;
}

class StreamDecoderTest : public ::testing::Test {
  protected:
    StreamDecoderTest() : vocab_(SmallVocab::standard()), tokenizer_(std::move(*vocab_.create())) {}
    TokenId byte(unsigned b) const { return vocab_[format("<0x%02X>", b)]; }

    SmallVocab vocab_;
    std::unique_ptr<SpmTokenizer> tokenizer_;
};

TEST_F(StreamDecoderTest, A8CharacterSplitOverTokens) {
    StreamDecoder decoder(*tokenizer_, true);
    EXPECT_EQ(decoder.push(vocab_["▁Hello"]), "Hello");
    EXPECT_EQ(decoder.push(byte(0xF0)), "");
    EXPECT_EQ(decoder.push(byte(0x9F)), "");
    EXPECT_EQ(decoder.push(byte(0xA6)), "");
    EXPECT_EQ(decoder.push(byte(0x99)), "🦙");
    EXPECT_EQ(decoder.push(vocab_["▁the"]), " the");
    EXPECT_EQ(decoder.finish(), "");
}

TEST_F(StreamDecoderTest, A8IncompleteTailBecomesOneReplacement) {
    StreamDecoder decoder(*tokenizer_, true);
    EXPECT_EQ(decoder.push(byte(0xF0)), "");
    EXPECT_EQ(decoder.push(byte(0x9F)), "");
    EXPECT_EQ(decoder.finish(), kUtf8Replacement);
    EXPECT_EQ(decoder.finish(), "");
}

TEST_F(StreamDecoderTest, A8EachIllFormedPartOnce) {
    StreamDecoder decoder(*tokenizer_, true);
    const std::string bad(kUtf8Replacement);
    EXPECT_EQ(decoder.push(byte(0xE2)), "");
    EXPECT_EQ(decoder.push(byte(0x96)), "");
    EXPECT_EQ(decoder.push(vocab_["he"]), bad + "he");
    EXPECT_EQ(decoder.push(byte(0x80)), bad);
    EXPECT_EQ(decoder.push(byte(0xFF)), bad);
    EXPECT_EQ(decoder.push(byte(0xE0)), "");
    EXPECT_EQ(decoder.push(byte(0x80)), bad + bad);  // E0 80 can start nothing
    EXPECT_EQ(decoder.push(byte(0xC3)), "");
    EXPECT_EQ(decoder.push(byte(0xC3)), bad);
    EXPECT_EQ(decoder.push(byte(0xA4)), "ä");
    EXPECT_EQ(decoder.finish(), "");
}

TEST_F(StreamDecoderTest, FirstSpaceOnlyAtTheStartOfTheText) {
    StreamDecoder start(*tokenizer_, true);
    EXPECT_EQ(start.push(1), "");  // a control token shows nothing and keeps the start
    EXPECT_EQ(start.push(vocab_["▁the"]), "the");
    EXPECT_EQ(start.push(vocab_["▁the"]), " the");
    StreamDecoder later(*tokenizer_, false);
    EXPECT_EQ(later.push(vocab_["▁the"]), " the");
    EXPECT_EQ(later.push(2), "");
}

TEST_F(StreamDecoderTest, NoSpaceIsDroppedWithoutAPrefix) {
    SmallVocab vocab = SmallVocab::standard();
    vocab.add_space_prefix = false;
    const auto tokenizer = std::move(*vocab.create());
    StreamDecoder decoder(*tokenizer, true);
    EXPECT_EQ(decoder.push(vocab["▁the"]), " the");
}

TEST_F(StreamDecoderTest, A8PiecesAddUpToTheRepairedWhole) {
    std::mt19937 random(3);
    for (int round = 0; round < 3000; ++round) {
        std::vector<TokenId> ids;
        for (size_t n = random() % 20; n > 0; --n) {
            const unsigned lead[] = {0xC3, 0xE2, 0xE0, 0xED, 0xF0, 0xF4, 0x96, 0x81, 0x9F, 0xBF};
            ids.push_back(random() % 3 ? byte(lead[random() % std::size(lead)])
                                       : static_cast<TokenId>(random() % vocab_.tokens.size()));
        }
        StreamDecoder decoder(*tokenizer_, true);
        std::string streamed;
        for (const TokenId id : ids) {
            const std::string piece = decoder.push(id);
            ASSERT_TRUE(valid_utf8(piece));
            streamed += piece;
        }
        streamed += decoder.finish();
        ASSERT_EQ(streamed, repaired(tokenizer_->decode(ids)));
    }
}

}  // namespace
}  // namespace picolm
