#include "base/utf8.h"

#include <cstdint>

namespace picolm {
namespace {

struct Lead {
    size_t length;       // of the whole character, 0: not a lead byte
    uint8_t second_min;  // the range of the second byte excludes overlong forms,
    uint8_t second_max;  // surrogates and values above U+10FFFF
};

Lead classify(uint8_t c) {
    if (c < 0x80) return {1, 0, 0};
    if (c < 0xC2) return {0, 0, 0};
    if (c < 0xE0) return {2, 0x80, 0xBF};
    if (c == 0xE0) return {3, 0xA0, 0xBF};
    if (c == 0xED) return {3, 0x80, 0x9F};
    if (c < 0xF0) return {3, 0x80, 0xBF};
    if (c == 0xF0) return {4, 0x90, 0xBF};
    if (c < 0xF4) return {4, 0x80, 0xBF};
    if (c == 0xF4) return {4, 0x80, 0x8F};
    return {0, 0, 0};
}

// How many leading bytes of `text` fit the form that its first byte announces.
size_t valid_bytes(std::string_view text, const Lead& lead) {
    size_t n = 1;
    while (n < lead.length && n < text.size()) {
        const uint8_t c = static_cast<uint8_t>(text[n]);
        const uint8_t low = n == 1 ? lead.second_min : 0x80;
        const uint8_t high = n == 1 ? lead.second_max : 0xBF;
        if (c < low || c > high) break;
        ++n;
    }
    return n;
}

}  // namespace

size_t utf8_char_length(std::string_view text) {
    if (text.empty()) return 0;
    const Lead lead = classify(static_cast<uint8_t>(text[0]));
    if (lead.length == 0) return 0;
    return valid_bytes(text, lead) == lead.length ? lead.length : 0;
}

size_t utf8_incomplete_length(std::string_view text) {
    if (text.empty()) return 0;
    const Lead lead = classify(static_cast<uint8_t>(text[0]));
    if (lead.length < 2) return 0;
    const size_t n = valid_bytes(text, lead);
    return n == text.size() && n < lead.length ? n : 0;
}

}  // namespace picolm
