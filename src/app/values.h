// Text -> numbers for options: decimal only, the whole text, no locale, nothing that is not finite.
// nullopt: not such a number, or one that does not fit.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace picolm::app {

std::optional<uint64_t> parse_unsigned(std::string_view text);
// "16,64,128": whole numbers from low to high between commas. "none" is the empty list.
std::optional<std::vector<uint32_t>> parse_list(std::string_view text, uint32_t low, uint32_t high);
std::optional<double> parse_real(std::string_view text);
// A number of bytes with an optional suffix K, M or G (powers of 1024, either case).
std::optional<uint64_t> parse_size(std::string_view text);

}  // namespace picolm::app
