#include "text/tokenizer.h"

namespace picolm {

void Tokenizer::append_text(TokenId id, bool render_special, bool& at_start,
                            std::string& out) const {
    const std::string bytes = token_bytes(id, render_special);
    const TokenKind kind = token_kind(id);
    if (kind == TokenKind::control || kind == TokenKind::user_defined) {
        out += bytes;
        at_start = trims_first_space();
        return;
    }
    if (bytes.empty()) return;
    const bool drops_space = at_start && bytes.front() == ' ';
    out.append(bytes, drops_space ? 1 : 0);
    at_start = false;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool render_special) const {
    std::string text;
    bool at_start = trims_first_space();
    for (const TokenId id : ids) append_text(id, render_special, at_start, text);
    return text;
}

}  // namespace picolm
