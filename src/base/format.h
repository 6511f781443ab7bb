// printf-style text into std::string: the one way messages are built.
#pragma once

#include <string>
#include <string_view>

namespace picolm {

#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
std::string
format(const char* pattern, ...);

// "638.1 MB": decimal units, one digit, for people.
std::string format_bytes(unsigned long long n);

// Text from a file or a network as it may be shown: control characters and invalid UTF-8 become
// '?', and anything past max_len bytes becomes "...".
std::string printable(std::string_view text, size_t max_len = 80);

}  // namespace picolm
