#include "decode/stop_matcher.h"

#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"

namespace picolm {
namespace {

using Stops = std::vector<std::string>;

struct Outcome {
    std::string text;
    std::optional<size_t> matched;
    bool operator==(const Outcome&) const = default;
};

void PrintTo(const Outcome& o, std::ostream* out) {
    *out << '"' << o.text << "\" stop " << (o.matched ? std::to_string(*o.matched) : "none");
}

Outcome feed(const Stops& stops, const std::vector<std::string>& pieces) {
    StopMatcher matcher(stops);
    Outcome outcome;
    for (const std::string& piece : pieces) outcome.text += matcher.push(piece);
    outcome.text += matcher.finish();
    outcome.matched = matcher.matched();
    return outcome;
}

std::vector<std::string> cut_into_bytes(const std::string& text) {
    std::vector<std::string> pieces;
    for (const char c : text) pieces.emplace_back(1, c);
    return pieces;
}

bool valid_utf8(std::string_view text) {
    while (!text.empty()) {
        const size_t n = utf8_char_length(text);
        if (n == 0) return false;
        text.remove_prefix(n);
    }
    return true;
}

// The rule of the header on the whole text: earliest end, then the longest, then the first.
Outcome whole_text(const Stops& stops, const std::string& text) {
    for (size_t end = 1; end <= text.size(); ++end) {
        std::optional<size_t> best;
        for (size_t i = 0; i < stops.size(); ++i)
            if (!stops[i].empty() && std::string_view(text).substr(0, end).ends_with(stops[i]) &&
                (!best || stops[i].size() > stops[*best].size()))
                best = i;
        if (!best) continue;
        std::string before = text.substr(0, end - stops[*best].size());
        for (size_t n = std::min<size_t>(3, before.size()); n > 0; --n) {
            if (utf8_incomplete_length(before.substr(before.size() - n)) != n) continue;
            before.resize(before.size() - n);
            break;
        }
        return {before, best};
    }
    return {text, std::nullopt};
}

TEST(StopMatcherTest, StopSpreadOverPieces) {
    StopMatcher matcher({"<|end|>", "\n\nUser:"});
    EXPECT_EQ(matcher.push("Hello"), "Hello");
    EXPECT_EQ(matcher.push(" wor\n"), " wor");
    EXPECT_EQ(matcher.push("\nUs"), "");
    EXPECT_EQ(matcher.push("ed <"), "\n\nUsed ");
    EXPECT_EQ(matcher.push("|e"), "");
    EXPECT_FALSE(matcher.matched());
    EXPECT_EQ(matcher.push("nd|> and more"), "");
    EXPECT_EQ(matcher.matched(), 0u);
    EXPECT_EQ(matcher.push("never"), "");
    EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcherTest, FinishReleasesWhatDidNotBecomeAStop) {
    StopMatcher matcher({"STOP"});
    EXPECT_EQ(matcher.push("a STO"), "a ");
    EXPECT_EQ(matcher.finish(), "STO");
    EXPECT_FALSE(matcher.matched());
    EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcherTest, WhichStopWins) {
    EXPECT_EQ(feed({"abcd", "bc"}, {"xabcd"}), (Outcome{"xa", 1}));       // complete first
    EXPECT_EQ(feed({"c", "abc"}, {"xabc"}), (Outcome{"x", 1}));           // longest
    EXPECT_EQ(feed({"ab", "ab"}, {"ab"}), (Outcome{"", 0}));              // given first
    EXPECT_EQ(feed({"", "b"}, {"ab"}), (Outcome{"a", 1}));                // empty: never
    EXPECT_EQ(feed({}, {"a", "b"}), (Outcome{"ab", {}}));                 // no stops
    EXPECT_EQ(feed({"aab"}, cut_into_bytes("aaab")), (Outcome{"a", 0}));  // overlapping start
}

TEST(StopMatcherTest, NothingIsHeldWithoutAReason) {
    StopMatcher matcher({"xyz"});
    EXPECT_EQ(matcher.push("é"), "é");
    EXPECT_EQ(matcher.push("xyé"), "xyé");
    EXPECT_EQ(matcher.push("\xC3"), "");  // half a character
    EXPECT_EQ(matcher.push("\xA9"), "é");
}

TEST(StopMatcherTest, StopThatBeginsInsideACharacter) {
    EXPECT_EQ(feed({"\xA9"}, {"aé"}), (Outcome{"a", 0}));
    EXPECT_EQ(feed({"\xA9z"}, {"a", "é", "y"}), (Outcome{"aéy", {}}));
    StopMatcher matcher({"\xA9z"});
    EXPECT_EQ(matcher.push("aé"), "a");  // the whole character is held
    EXPECT_EQ(matcher.push("z"), "");
    EXPECT_EQ(matcher.matched(), 0u);
}

// Texts and stops from few letters, so that partial matches abound; every cutting gives the outcome
// of the rule on the whole text, and whole characters in give whole characters out at every step.
TEST(StopMatcherTest, CuttingDoesNotMatter) {
    const Stops letters = {"a", "b", "é", "è", "€", "🦙", "🦘"};
    const Stops bytes = {"a", "\xC3", "\xA9", "\xE2", "\x82", "\xF0", "\x9F", "\xA6", "é"};
    std::mt19937 random(1);
    int n_matched = 0;
    for (int trial = 0; trial < 30'000; ++trial) {
        const Stops& alphabet = trial % 3 == 2 ? bytes : letters;
        const auto make = [&](size_t max_len) {
            std::vector<std::string> pieces(random() % (max_len + 1));
            for (std::string& piece : pieces)
                piece = alphabet[random() % (1 + random() % alphabet.size())];
            return pieces;
        };
        const auto join = [](const std::vector<std::string>& pieces) {
            std::string text;
            for (const std::string& piece : pieces) text += piece;
            return text;
        };
        Stops stops(random() % 4);
        for (std::string& stop : stops) {
            stop = join(make(5));
            if (trial % 3 == 1 && !stop.empty()) stop.erase(0, random() % stop.size());
        }
        const auto pieces = make(30);
        const std::string text = join(pieces);
        const Outcome expected = whole_text(stops, text);
        n_matched += expected.matched.has_value();
        ASSERT_EQ(feed(stops, {text}), expected);
        ASSERT_EQ(feed(stops, pieces), expected);
        ASSERT_EQ(feed(stops, cut_into_bytes(text)), expected);
        if (!valid_utf8(text)) continue;
        ASSERT_TRUE(valid_utf8(expected.text));
        StopMatcher matcher(stops);
        for (const std::string& piece : cut_into_bytes(text))
            ASSERT_TRUE(valid_utf8(matcher.push(piece)));
    }
    EXPECT_GT(n_matched, 5'000);
    EXPECT_LT(n_matched, 25'000);
}

TEST(StopMatcherTest, LongHostileStopsStayLinear) {
    const std::string stop = std::string(100'000, 'a') + "b";
    StopMatcher matcher({stop});
    std::string out;
    for (int i = 0; i < 300; ++i) out += matcher.push(std::string(1000, 'a'));
    EXPECT_EQ(out.size(), 200'000u);
    EXPECT_EQ(matcher.push("b"), "");
    EXPECT_EQ(matcher.matched(), 0u);
}

}  // namespace
}  // namespace picolm
