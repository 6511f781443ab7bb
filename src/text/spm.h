// The SentencePiece kind of tokenizer (tokenizer.ggml.model = "llama"): neighbouring symbols merge
// in order of token score, what has no token falls back to byte tokens. Knows nothing of GGUF
// files but the layout of the arrays it is given.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "text/special_tokens.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

namespace picolm {

// What a tokenizer is made of; arrays are little-endian, unaligned, and must outlive it.
struct SpmVocab {
    TokenTexts texts;  // U+2581 stands for a space
    Bytes scores;      // [texts.size()] f32: the highest merges first
    Bytes types;       // [texts.size()] i32: TokenKind
    std::optional<TokenId> bos;
    std::optional<TokenId> eos;
    std::optional<TokenId> unknown;
    std::vector<TokenId> end_of_generation;  // beside the known end marks
    bool add_bos = true;
    bool add_eos = false;
    bool add_space_prefix = true;
    // White space behind a special token is dropped, unless that token is one of <unk>, <s> and
    // <|endoftext|> (the Phi-3 family).
    bool strip_after_special = false;
};

// corrupt: an empty vocabulary, or arrays of different lengths.
Status check_sizes(const SpmVocab& vocab);

class SpmTokenizer final : public Tokenizer {
  public:
    // corrupt: as check_sizes(); an id outside the vocabulary, a type or score that means nothing,
    // a byte token that names no byte.
    static Result<std::unique_ptr<SpmTokenizer>> create(SpmVocab vocab);

    Result<std::vector<TokenId>> encode(std::string_view text,
                                        const EncodeOptions& options) const override;
    std::string token_bytes(TokenId id, bool render_special) const override;
    bool trims_first_space() const override { return vocab_.add_space_prefix; }
    uint32_t n_vocab() const override { return vocab_.texts.size(); }
    std::string_view token_text(TokenId id) const override { return vocab_.texts[id]; }
    TokenKind token_kind(TokenId id) const override;
    std::optional<TokenId> bos() const override { return vocab_.bos; }
    std::optional<TokenId> eos() const override { return vocab_.eos; }
    bool add_bos() const override { return vocab_.add_bos && vocab_.bos.has_value(); }
    bool is_end_of_generation(TokenId id) const override;

  private:
    friend class SpmMerger;

    explicit SpmTokenizer(SpmVocab vocab);
    Status check_ids() const;
    Status add_token(TokenId id);
    Status add_byte_token(TokenId id, std::string_view text);
    void add_mergeable(TokenId id, std::string_view text);
    void add_special(TokenId id, std::string_view text, TokenKind kind);

    bool spells(TokenId id, std::string_view piece) const;
    TokenId find(std::string_view piece) const;
    bool joins(char left, char right) const;
    // Smaller merges earlier.
    uint32_t merge_rank(TokenId id) const;
    Status append_fallback(std::string_view character, std::vector<TokenId>& ids) const;
    Status append_plain(std::string_view text, std::vector<TokenId>& ids) const;

    SpmVocab vocab_;
    SpecialTokens specials_;
    std::vector<TokenId> end_of_generation_;  // sorted
    std::vector<TokenId> forced_control_;     // sorted; normally empty
    std::array<TokenId, 256> byte_tokens_;    // kNoToken: none
    // Open addressing, linear probing, at most half full. A slot is a token id below an eight-bit
    // tag of the hash, so that a miss seldom touches the token's text.
    std::vector<uint32_t> slots_;
    uint32_t longest_ = 0;  // bytes of the longest mergeable token, a space being one byte
    // [256 x 256] bits: some mergeable token holds this pair of bytes. Between two characters
    // whose bytes are no such pair nothing can merge, and the text is cut there.
    std::vector<uint64_t> pairs_;
};

}  // namespace picolm
