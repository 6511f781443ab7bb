// The slow, plain way to encode: every rule written down as it is said, nothing shared with the
// code under test. Quadratic and worse; for short texts.
#pragma once

#include <algorithm>
#include <cctype>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "small_vocab.h"

namespace picolm::testing {

class ReferenceSpm {
  public:
    // REQUIRES: a vocabulary that SpmTokenizer takes, with all byte tokens, and without texts of
    // text/end_marks.h that are typed wrongly.
    explicit ReferenceSpm(const SmallVocab& vocab) : vocab_(vocab) {
        for (TokenId id = 0; id < vocab.tokens.size(); ++id) {
            const std::string& text = vocab.tokens[id];
            switch (kind(id)) {
                case TokenKind::normal:
                    if (text.find(' ') == std::string::npos) normal_[text] = id;
                    break;
                case TokenKind::control:
                case TokenKind::unknown:
                    specials_.push_back({text, id});
                    break;
                case TokenKind::user_defined:
                    specials_.push_back({replaced(text, "▁", " "), id});
                    break;
                case TokenKind::unused:
                    break;
                case TokenKind::byte:
                    bytes_[std::stoul(text.substr(3, 2), nullptr, 16)] = id;
                    break;
            }
        }
        const auto is_beaten = [this](const Special& a) {
            return std::any_of(specials_.begin(), specials_.end(), [&](const Special& b) {
                if (a.text != b.text) return false;
                const bool a_always = kind(a.id) == TokenKind::user_defined;
                const bool b_always = kind(b.id) == TokenKind::user_defined;
                return a_always != b_always ? b_always : b.id < a.id;
            });
        };
        std::vector<Special> rest;
        for (const Special& special : specials_) {
            if (!is_beaten(special)) rest.push_back(special);
        }
        specials_ = rest;
        std::stable_sort(
            specials_.begin(), specials_.end(),
            [](const Special& a, const Special& b) { return a.text.size() > b.text.size(); });
    }

    std::vector<TokenId> encode(std::string_view text, Tokenizer::EncodeOptions options) const {
        std::vector<Part> parts;
        if (!text.empty()) parts.push_back({std::string(text), kNoToken});
        for (const Special& special : specials_) {
            const bool wanted =
                options.parse_special || kind(special.id) == TokenKind::user_defined;
            if (wanted && !special.text.empty()) parts = cut(parts, special);
        }
        std::vector<TokenId> ids;
        if (options.add_special && vocab_.add_bos && vocab_.bos) ids.push_back(*vocab_.bos);
        bool at_start = true;
        for (const Part& part : parts) {
            if (part.token != kNoToken) {
                ids.push_back(part.token);
            } else {
                const std::string prefix = at_start && vocab_.add_space_prefix ? " " : "";
                append_merged(replaced(prefix + part.text, " ", "▁"), ids);
            }
            at_start = part.token != kNoToken;
        }
        if (options.add_special && vocab_.add_eos && vocab_.eos) ids.push_back(*vocab_.eos);
        return ids;
    }

  private:
    struct Special {
        std::string text;
        TokenId id;
    };
    struct Part {
        std::string text;
        TokenId token;
    };

    TokenKind kind(TokenId id) const { return static_cast<TokenKind>(vocab_.types[id]); }

    static std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
        std::string result;
        while (!text.empty()) {
            const bool hit = text.starts_with(from);
            result += hit ? to : text.substr(0, 1);
            text.remove_prefix(hit ? from.size() : 1);
        }
        return result;
    }

    std::vector<Part> cut(const std::vector<Part>& parts, const Special& special) const {
        const bool strips = vocab_.strip_after_special && special.text != "<s>" &&
                            special.text != "<unk>" && special.text != "<|endoftext|>";
        std::vector<Part> result;
        for (const Part& part : parts) {
            std::string rest = part.text;
            if (part.token != kNoToken) {
                result.push_back(part);
                continue;
            }
            for (size_t hit; (hit = rest.find(special.text)) != std::string::npos;) {
                if (hit > 0) result.push_back({rest.substr(0, hit), kNoToken});
                result.push_back({"", special.id});
                rest.erase(0, hit + special.text.size());
                while (strips && !rest.empty() && std::isspace(static_cast<unsigned char>(rest[0])))
                    rest.erase(0, 1);
            }
            if (!rest.empty()) result.push_back({rest, kNoToken});
        }
        return result;
    }

    void append_merged(const std::string& text, std::vector<TokenId>& ids) const {
        std::vector<std::string> symbols;
        for (size_t at = 0; at < text.size(); at += symbols.back().size()) {
            const size_t n = utf8_char_length(std::string_view(text).substr(at));
            symbols.push_back(text.substr(at, std::max<size_t>(n, 1)));
        }
        while (true) {
            size_t best = symbols.size();
            float best_score = 0;
            for (size_t i = 0; i + 1 < symbols.size(); ++i) {
                const auto found = normal_.find(symbols[i] + symbols[i + 1]);
                if (found == normal_.end()) continue;
                const float score = vocab_.scores[found->second];
                if (best == symbols.size() || score > best_score) {
                    best = i;
                    best_score = score;
                }
            }
            if (best == symbols.size()) break;
            symbols[best] += symbols[best + 1];
            symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
        }
        for (const std::string& symbol : symbols) {
            const auto found = normal_.find(symbol);
            if (found != normal_.end()) {
                ids.push_back(found->second);
                continue;
            }
            for (const char c : symbol == "▁" ? " " : symbol) {
                ids.push_back(bytes_[static_cast<uint8_t>(c)]);
            }
        }
    }

    const SmallVocab& vocab_;
    std::map<std::string, TokenId> normal_;
    std::vector<Special> specials_;
    TokenId bytes_[256] = {};
};

}  // namespace picolm::testing
