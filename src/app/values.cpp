#include "app/values.h"

#include <charconv>
#include <cmath>

namespace picolm::app {
namespace {

template <typename T>
std::optional<T> parse_whole(std::string_view text) {
    T value{};
    const char* end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stopped != end) return std::nullopt;
    return value;
}

}  // namespace

std::optional<uint64_t> parse_unsigned(std::string_view text) {
    return parse_whole<uint64_t>(text);
}

std::optional<std::vector<uint32_t>> parse_list(std::string_view text, uint32_t low,
                                                uint32_t high) {
    std::vector<uint32_t> values;
    if (text == "none") return values;
    for (bool more = true; more;) {
        const size_t comma = text.find(',');
        more = comma != text.npos;
        const std::optional<uint64_t> value = parse_unsigned(text.substr(0, comma));
        if (!value || *value < low || *value > high) return std::nullopt;
        values.push_back(static_cast<uint32_t>(*value));
        if (more) text.remove_prefix(comma + 1);
    }
    return values;
}

std::optional<double> parse_real(std::string_view text) {
    const std::optional<double> value = parse_whole<double>(text);
    if (value && !std::isfinite(*value)) return std::nullopt;
    return value;
}

std::optional<uint64_t> parse_size(std::string_view text) {
    if (text.empty()) return std::nullopt;
    unsigned shift = 0;
    switch (text.back()) {
        case 'K':
        case 'k':
            shift = 10;
            break;
        case 'M':
        case 'm':
            shift = 20;
            break;
        case 'G':
        case 'g':
            shift = 30;
            break;
        default:
            break;
    }
    if (shift != 0) text.remove_suffix(1);
    const std::optional<uint64_t> value = parse_unsigned(text);
    if (!value || *value > (UINT64_MAX >> shift)) return std::nullopt;
    return *value << shift;
}

}  // namespace picolm::app
