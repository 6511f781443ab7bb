// A SentencePiece vocabulary put together by a test: as the value that SpmTokenizer takes, and as
// the metadata of a GGUF file.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/format.h"
#include "gguf/writer.h"
#include "text/spm.h"

namespace picolm::testing {

class SmallVocab {
  public:
    TokenId add(std::string text, float score = 0, TokenKind kind = TokenKind::normal) {
        tokens.push_back(std::move(text));
        scores.push_back(score);
        types.push_back(static_cast<int32_t>(kind));
        return static_cast<TokenId>(tokens.size() - 1);
    }
    void add_bytes() {
        for (unsigned b = 0; b < 256; ++b) add(format("<0x%02X>", b), 0, TokenKind::byte);
    }
    // The id of a text. REQUIRES: it is there.
    TokenId operator[](std::string_view text) const {
        for (size_t i = 0; i < tokens.size(); ++i) {
            if (tokens[i] == text) return static_cast<TokenId>(i);
        }
        return kNoToken;
    }

    // <unk>, <s>, </s>, the bytes; then, best first, the words below and the characters they need.
    static SmallVocab standard() {
        SmallVocab vocab;
        vocab.add("<unk>", 0, TokenKind::unknown);
        vocab.add("<s>", 0, TokenKind::control);
        vocab.add("</s>", 0, TokenKind::control);
        vocab.add_bytes();
        float score = 0;
        for (const char* text :
             {"▁t", "he",   "ll",   "▁the",   "in",    "llo", "▁H",  "ello", "▁Hello",
              "ZZ", "ZZZZ", "aa",   "▁a",     "re",    "es",  "ä",   "äö",   "▁w",
              "or", "ld",   "orld", "▁world", "▁this", "is",  "▁is", "his",  "ZZZZZZZZ"}) {
            vocab.add(text, score--);
        }
        for (const char* text :
             {"▁▁", "▁▁▁▁", "▁▁▁", "▁▁▁▁▁▁▁▁", "▁", "t", "h", "e", "l", "o", "i", "n", "H", "Z",
              "a",  "r",    "s",   "w",        "d", "ö", ".", "<", ">", "/", "|", "c", "p"}) {
            vocab.add(text, -1e9f);
        }
        vocab.bos = 1;
        vocab.eos = 2;
        vocab.unknown = 0;
        return vocab;
    }

    // Valid as long as this object, and until its next change.
    SpmVocab view() {
        strings_.clear();
        for (const std::string& token : tokens) {
            const uint64_t n = token.size();
            const auto* length = reinterpret_cast<const uint8_t*>(&n);
            strings_.insert(strings_.end(), length, length + sizeof n);
            strings_.insert(strings_.end(), token.begin(), token.end());
        }
        SpmVocab vocab;
        vocab.texts = *TokenTexts::parse(strings_, tokens.size());
        vocab.scores = bytes_of(scores);
        vocab.types = bytes_of(types);
        vocab.bos = bos;
        vocab.eos = eos;
        vocab.unknown = unknown;
        vocab.add_bos = add_bos;
        vocab.add_eos = add_eos;
        vocab.add_space_prefix = add_space_prefix;
        vocab.strip_after_special = strip_after_special;
        return vocab;
    }
    Result<std::unique_ptr<SpmTokenizer>> create() { return SpmTokenizer::create(view()); }

    GgufWriter writer() const {
        GgufWriter writer;
        writer.put_string("general.architecture", "llama");
        writer.put_string("tokenizer.ggml.model", "llama");
        writer.put_strings("tokenizer.ggml.tokens", tokens);
        writer.put_f32s("tokenizer.ggml.scores", scores);
        writer.put_i32s("tokenizer.ggml.token_type", types);
        return writer;
    }

    std::vector<std::string> tokens;
    std::vector<float> scores;
    std::vector<int32_t> types;
    std::optional<TokenId> bos, eos, unknown;
    bool add_bos = true;
    bool add_eos = false;
    bool add_space_prefix = true;
    bool strip_after_special = false;

  private:
    template <typename T>
    static Bytes bytes_of(const std::vector<T>& values) {
        return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
    }
    std::vector<uint8_t> strings_;
};

}  // namespace picolm::testing
