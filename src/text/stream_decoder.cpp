#include "text/stream_decoder.h"

#include <string_view>

#include "base/utf8.h"

namespace picolm {
namespace {

// Length of the part at the start of `text` that one U+FFFD stands for: the longest prefix that
// some valid character begins with, else one byte. REQUIRES: text starts with no valid character.
size_t ill_formed_length(std::string_view text) {
    size_t n = 1;
    while (n < text.size() && utf8_incomplete_length(text.substr(0, n + 1)) == n + 1) ++n;
    return n;
}

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool at_text_start)
    : tokenizer_(tokenizer), trim_space_(at_text_start && tokenizer.trims_first_space()) {}

std::string StreamDecoder::push(TokenId id) {
    tokenizer_.append_text(id, false, trim_space_, held_);
    std::string ready;
    std::string_view rest = held_;
    while (!rest.empty() && utf8_incomplete_length(rest) == 0) {
        size_t n = utf8_char_length(rest);
        if (n > 0) {
            ready += rest.substr(0, n);
        } else {
            n = ill_formed_length(rest);
            ready += kUtf8Replacement;
        }
        rest.remove_prefix(n);
    }
    held_.erase(0, held_.size() - rest.size());
    return ready;
}

std::string StreamDecoder::finish() {
    std::string tail(held_.empty() ? std::string_view() : kUtf8Replacement);
    held_.clear();
    return tail;
}

}  // namespace picolm
