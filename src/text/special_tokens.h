// Finds the tokens that are matched in raw text before any merging: control, unknown and
// user-defined ones. Cuts a text into them and the plain text between; knows no merges.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace picolm {

inline constexpr TokenId kNoToken = UINT32_MAX;

// [begin, end) of a text: the token it spells, or plain text when token is kNoToken.
struct TextFragment {
    uint32_t begin;
    uint32_t end;
    TokenId token;
};

class SpecialTokens {
  public:
    struct Options {
        bool always = false;  // matched with parse_special == false too: user-defined tokens
        bool strips_space_behind = false;  // white space behind it belongs to no token
    };
    // `text` is kept as a view. Empty texts are ignored.
    void add(std::string_view text, TokenId id, Options options);
    // The same for a text that this object has to own.
    void add_owned(std::string text, TokenId id, Options options);
    // To be called once, after the last add().
    void finish();

    // The longest token wins wherever it stands, then the lower id, then the leftmost place; the
    // fragments come in order. REQUIRES: text.size() <= 2^31.
    std::vector<TextFragment> split(std::string_view text, bool parse_special) const;

  private:
    struct Entry {
        std::string_view text;
        TokenId id;
        uint32_t shorter;  // the longest entry that is a proper prefix of this one, or kNoEntry
        Options options;
    };
    struct Match {
        uint32_t begin;
        uint32_t entry;
    };
    static constexpr uint32_t kNoEntry = UINT32_MAX;

    uint32_t longest_at(std::string_view text) const;
    uint32_t first_allowed(uint32_t entry, bool parse_special) const;
    std::vector<Match> find_all(std::string_view text, bool parse_special) const;
    std::vector<TextFragment> choose(std::string_view text, std::vector<Match> matches,
                                     bool parse_special) const;

    std::vector<Entry> entries_;  // sorted by text once finished
    std::deque<std::string> owned_;
    uint32_t first_byte_[257] = {};  // [b] .. [b + 1]: the entries that begin with byte b
};

}  // namespace picolm
