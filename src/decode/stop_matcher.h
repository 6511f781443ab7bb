// Finds stop strings in a text that arrives in pieces, and decides how much of it can be shown. The
// result depends on the bytes alone, never on how they were cut into pieces.
//
// The stop that is complete first wins; of several that end at one byte, the longest, then the one
// given first. Nothing of it is released; a text that could still become a stop is held back, and
// so is an incomplete UTF-8 character: pieces of valid text come out valid, also when a stop that
// is not valid UTF-8 begins inside a character (which is then dropped as a whole).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace picolm {

// Time is linear in text times number of stops; memory in the length of the stops.
class StopMatcher {
  public:
    // An empty stop never matches.
    explicit StopMatcher(const std::vector<std::string>& stops);

    // What can be shown now. After a match the rest is dropped and nothing more comes.
    std::string push(std::string_view text);
    // The end of the text: what was held back and did not become a stop.
    std::string finish();

    // Index of the stop that matched.
    std::optional<size_t> matched() const { return matched_; }

  private:
    struct Stop {
        std::string text;
        std::vector<uint32_t> fallback;  // [n]: longest proper border of the first i + 1 bytes
        size_t n_matched = 0;            // bytes of it that the text ends with
    };

    void advance(char c);
    std::string release(size_t end);

    std::vector<Stop> stops_;
    std::string held_;
    std::optional<size_t> matched_;
};

}  // namespace picolm
