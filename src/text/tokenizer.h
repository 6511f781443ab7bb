// Text <-> token ids. One interface for every kind of vocabulary; load_tokenizer() picks the kind
// from tokenizer.ggml.model ("llama": SentencePiece merges by score).
//
// Thread-safe once loaded. Views point into the GgufFile, which must outlive the tokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/gguf.h"

namespace picolm {

using TokenId = uint32_t;

enum class TokenKind : uint8_t { normal = 1, unknown, control, user_defined, unused, byte };

class Tokenizer {
  public:
    virtual ~Tokenizer() = default;

    struct EncodeOptions {
        bool add_special = true;    // BOS / EOS as the model asks (add_bos_token, add_eos_token)
        bool parse_special = true;  // text that spells a control token becomes that token
    };
    // Linear in the text but for a logarithm; any bytes are accepted, invalid UTF-8 and NUL go
    // through byte tokens. `unsupported` when a byte has no token and the vocabulary no unknown
    // token.
    virtual Result<std::vector<TokenId>> encode(std::string_view text,
                                                const EncodeOptions& options) const = 0;

    // The bytes that one token stands for, without any trimming of a leading space. Control tokens
    // give nothing unless render_special. REQUIRES: id < n_vocab().
    virtual std::string token_bytes(TokenId id, bool render_special = false) const = 0;
    // Text of the whole sequence. decode(encode(x, no specials)) == x, byte for byte, for every x
    // without U+2581: that character is how SentencePiece spells a space, and it comes back as one.
    std::string decode(std::span<const TokenId> ids, bool render_special = false) const;
    // The same, token by token: appends what `id` adds to a text. `at_start` says that encode()
    // would have put its space prefix here, so that one leading space is dropped; it is updated for
    // the next token (encode() also prefixes the text behind a control or user-defined token).
    // It begins as trims_first_space().
    void append_text(TokenId id, bool render_special, bool& at_start, std::string& out) const;
    // True when encode() puts a space before the text (add_space_prefix) and decode() drops it.
    virtual bool trims_first_space() const = 0;

    virtual uint32_t n_vocab() const = 0;
    virtual std::string_view token_text(TokenId id) const = 0;  // as the file spells it
    virtual TokenKind token_kind(TokenId id) const = 0;
    virtual std::optional<TokenId> bos() const = 0;
    virtual std::optional<TokenId> eos() const = 0;
    virtual bool add_bos() const = 0;
    // Every id that ends generation: eos, eot, eom as the file names them, and tokens whose text is
    // a known end mark (text/end_marks.h).
    virtual bool is_end_of_generation(TokenId id) const = 0;
};

// corrupt: what is wrong with the vocabulary; unsupported: names the kind and lists the known ones.
Result<std::unique_ptr<Tokenizer>> load_tokenizer(const GgufFile& file);

}  // namespace picolm
