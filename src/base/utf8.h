// UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string_view>

namespace picolm {

// Length 1..4 of the valid character at the start of `text`; 0 when there is none (also when the
// text ends inside it).
size_t utf8_char_length(std::string_view text);

// Number of bytes (1..3) that `text` holds of a character which more bytes could still complete;
// 0 when `text` is empty, starts with a complete character, or with a byte that no continuation
// can make valid.
size_t utf8_incomplete_length(std::string_view text);

inline constexpr std::string_view kUtf8Replacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace picolm
