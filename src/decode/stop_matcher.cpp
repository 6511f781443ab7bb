#include "decode/stop_matcher.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace picolm {
namespace {

// One step of Knuth-Morris-Pratt: how many bytes of `text` match after `c`, when n did before.
size_t next_match(std::string_view text, const std::vector<uint32_t>& fallback, size_t n, char c) {
    while (n > 0 && (n == text.size() || text[n] != c)) n = fallback[n - 1];
    return text[n] == c ? n + 1 : 0;
}

// Bytes at the end of `text` that begin a character.
size_t incomplete_tail(std::string_view text) {
    for (size_t n = std::min<size_t>(3, text.size()); n > 0; --n)
        if (utf8_incomplete_length(text.substr(text.size() - n)) == n) return n;
    return 0;
}

}  // namespace

StopMatcher::StopMatcher(const std::vector<std::string>& stops) {
    for (const std::string& text : stops) {
        Stop stop{text, std::vector<uint32_t>(text.size()), 0};
        for (size_t i = 1; i < text.size(); ++i)
            stop.fallback[i] = static_cast<uint32_t>(
                next_match(text, stop.fallback, stop.fallback[i - 1], text[i]));
        stops_.push_back(std::move(stop));
    }
}

void StopMatcher::advance(char c) {
    for (size_t i = 0; i < stops_.size(); ++i) {
        Stop& stop = stops_[i];
        if (stop.text.empty()) continue;
        stop.n_matched = next_match(stop.text, stop.fallback, stop.n_matched, c);
        const bool complete = stop.n_matched == stop.text.size();
        if (complete && (!matched_ || stop.n_matched > stops_[*matched_].n_matched)) matched_ = i;
    }
}

// Takes held_[0, end) out, but for a character that `end` would cut.
std::string StopMatcher::release(size_t end) {
    end -= incomplete_tail(std::string_view(held_).substr(0, end));
    std::string out = held_.substr(0, end);
    held_.erase(0, end);
    return out;
}

std::string StopMatcher::push(std::string_view text) {
    if (matched_) return {};
    for (const char c : text) {
        held_ += c;
        advance(c);
        if (matched_) {
            std::string out = release(held_.size() - stops_[*matched_].text.size());
            held_.clear();
            return out;
        }
    }
    size_t keep = 0;
    for (const Stop& stop : stops_) keep = std::max(keep, stop.n_matched);
    return release(held_.size() - keep);
}

std::string StopMatcher::finish() {
    return std::exchange(held_, {});
}

}  // namespace picolm
