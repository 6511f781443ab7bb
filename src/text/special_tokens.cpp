#include "text/special_tokens.h"

#include <algorithm>

namespace picolm {
namespace {

uint8_t byte_at(std::string_view text, size_t i) {
    return static_cast<uint8_t>(text[i]);
}

bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

}  // namespace

void SpecialTokens::add(std::string_view text, TokenId id, Options options) {
    if (!text.empty()) entries_.push_back({text, id, kNoEntry, options});
}

void SpecialTokens::add_owned(std::string text, TokenId id, Options options) {
    owned_.push_back(std::move(text));
    add(owned_.back(), id, options);
}

void SpecialTokens::finish() {
    // Of equal texts the first stays: one that is always matched, then the lower id.
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
        if (a.text != b.text) return a.text < b.text;
        if (a.options.always != b.options.always) return a.options.always;
        return a.id < b.id;
    });
    const auto same = [](const Entry& a, const Entry& b) { return a.text == b.text; };
    entries_.erase(std::unique(entries_.begin(), entries_.end(), same), entries_.end());

    // In sorted order the prefixes of an entry are a subset of its predecessor and that one's
    // prefixes.
    for (uint32_t i = 1; i < entries_.size(); ++i) {
        uint32_t candidate = i - 1;
        while (candidate != kNoEntry && !entries_[i].text.starts_with(entries_[candidate].text)) {
            candidate = entries_[candidate].shorter;
        }
        entries_[i].shorter = candidate;
    }
    uint32_t i = 0;
    for (uint32_t b = 0; b < 256; ++b) {
        first_byte_[b] = i;
        while (i < entries_.size() && byte_at(entries_[i].text, 0) == b) ++i;
    }
    first_byte_[256] = i;
}

// The longest entry that `text` begins with. REQUIRES: text is not empty.
uint32_t SpecialTokens::longest_at(std::string_view text) const {
    const uint32_t b = byte_at(text, 0);
    auto low = entries_.begin() + first_byte_[b];
    auto high = entries_.begin() + first_byte_[b + 1];
    uint32_t longest = kNoEntry;
    // All of [low, high) share their first `depth` bytes with the text.
    for (size_t depth = 1; low != high; ++depth) {
        if (low->text.size() == depth) {
            longest = static_cast<uint32_t>(low - entries_.begin());
            ++low;
        }
        if (depth == text.size()) break;
        const uint8_t next = byte_at(text, depth);
        low = std::partition_point(low, high,
                                   [&](const Entry& e) { return byte_at(e.text, depth) < next; });
        high = std::partition_point(low, high,
                                    [&](const Entry& e) { return byte_at(e.text, depth) == next; });
    }
    return longest;
}

uint32_t SpecialTokens::first_allowed(uint32_t entry, bool parse_special) const {
    while (entry != kNoEntry && !parse_special && !entries_[entry].options.always) {
        entry = entries_[entry].shorter;
    }
    return entry;
}

// At each place the longest token only; a shorter one takes its turn when that one loses.
std::vector<SpecialTokens::Match> SpecialTokens::find_all(std::string_view text,
                                                          bool parse_special) const {
    std::vector<Match> matches;
    for (size_t i = 0; i < text.size(); ++i) {
        const uint32_t b = byte_at(text, i);
        if (first_byte_[b] == first_byte_[b + 1]) continue;
        const uint32_t entry = first_allowed(longest_at(text.substr(i)), parse_special);
        if (entry != kNoEntry) matches.push_back({static_cast<uint32_t>(i), entry});
    }
    return matches;
}

std::vector<TextFragment> SpecialTokens::choose(std::string_view text, std::vector<Match> matches,
                                                bool parse_special) const {
    const auto comes_later = [this](const Match& a, const Match& b) {
        const Entry& x = entries_[a.entry];
        const Entry& y = entries_[b.entry];
        if (x.text.size() != y.text.size()) return x.text.size() < y.text.size();
        if (x.id != y.id) return x.id > y.id;
        return a.begin > b.begin;
    };
    std::make_heap(matches.begin(), matches.end(), comes_later);
    std::vector<bool> taken(text.size());
    std::vector<TextFragment> tokens;  // their ends include stripped white space
    while (!matches.empty()) {
        std::pop_heap(matches.begin(), matches.end(), comes_later);
        Match& match = matches.back();
        const Entry& entry = entries_[match.entry];
        size_t end = match.begin + entry.text.size();
        // Whatever is taken is at least as long as this token: looking at both ends is enough.
        if (taken[match.begin]) {
            matches.pop_back();
            continue;
        }
        if (taken[end - 1]) {
            match.entry = first_allowed(entry.shorter, parse_special);
            if (match.entry == kNoEntry) {
                matches.pop_back();
            } else {
                std::push_heap(matches.begin(), matches.end(), comes_later);
            }
            continue;
        }
        if (entry.options.strips_space_behind) {
            while (end < text.size() && !taken[end] && is_space(text[end])) ++end;
        }
        std::fill(taken.begin() + match.begin, taken.begin() + static_cast<ptrdiff_t>(end), true);
        tokens.push_back({match.begin, static_cast<uint32_t>(end), entry.id});
        matches.pop_back();
    }
    std::sort(tokens.begin(), tokens.end(),
              [](const TextFragment& a, const TextFragment& b) { return a.begin < b.begin; });
    return tokens;
}

std::vector<TextFragment> SpecialTokens::split(std::string_view text, bool parse_special) const {
    std::vector<Match> matches = find_all(text, parse_special);
    std::vector<TextFragment> tokens;
    if (!matches.empty()) tokens = choose(text, std::move(matches), parse_special);

    std::vector<TextFragment> fragments;
    fragments.reserve(2 * tokens.size() + 1);
    uint32_t at = 0;
    for (const TextFragment& token : tokens) {
        if (token.begin > at) fragments.push_back({at, token.begin, kNoToken});
        fragments.push_back(token);
        at = token.end;
    }
    const uint32_t end = static_cast<uint32_t>(text.size());
    if (end > at) fragments.push_back({at, end, kNoToken});
    return fragments;
}

}  // namespace picolm
