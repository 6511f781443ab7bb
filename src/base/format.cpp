#include "base/format.h"

#include <cstdarg>
#include <cstdio>

#include "base/utf8.h"

namespace picolm {

std::string format(const char* pattern, ...) {
    va_list args, again;
    va_start(args, pattern);
    va_copy(again, args);
    const int n = std::vsnprintf(nullptr, 0, pattern, args);
    va_end(args);
    std::string text(n > 0 ? static_cast<size_t>(n) : 0, '\0');
    if (n > 0) std::vsnprintf(text.data(), text.size() + 1, pattern, again);
    va_end(again);
    return text;
}

std::string format_bytes(unsigned long long n) {
    static const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
    if (n < 1000) return format("%llu B", n);
    double value = static_cast<double>(n);
    int unit = 0;
    while (value >= 999.95 && unit < 4) {
        value /= 1000.0;
        ++unit;
    }
    return format("%.1f %s", value, units[unit]);
}

std::string printable(std::string_view text, size_t max_len) {
    std::string out;
    size_t i = 0;
    while (i < text.size()) {
        if (out.size() >= max_len) return out + "...";
        const size_t n = utf8_char_length(text.substr(i));
        const unsigned char c = static_cast<unsigned char>(text[i]);
        // U+0080..U+009F, two bytes, are control characters too.
        const bool c1 = n == 2 && c == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0;
        if (n == 0 || c < 0x20 || c == 0x7f || c1) {
            out += '?';
            i += n == 0 ? 1 : n;
        } else {
            out += text.substr(i, n);
            i += n;
        }
    }
    return out;
}

}  // namespace picolm
