#include "text/spm.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "base/format.h"
#include "base/utf8.h"
#include "text/end_marks.h"

namespace picolm {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
constexpr size_t kMaxText = size_t{1} << 30;
constexpr uint32_t kIdMask = TokenTexts::kMaxTokens;
constexpr uint32_t kEmptySlot = UINT32_MAX;
static_assert((kIdMask & (kIdMask + 1)) == 0);

template <typename T>
T load(Bytes array, size_t i) {
    T value;
    std::memcpy(&value, array.data() + i * sizeof(T), sizeof(T));
    return value;
}

std::string replace_all(std::string_view text, std::string_view from, char to) {
    std::string result;
    result.reserve(text.size());
    for (size_t at = 0;;) {
        const size_t hit = text.find(from, at);
        result += text.substr(at, hit - at);
        if (hit == std::string_view::npos) return result;
        result += to;
        at = hit + from.size();
    }
}

uint32_t hash_of(std::string_view piece) {
    uint32_t hash = 2166136261u;  // FNV-1a, then the finaliser of MurmurHash3
    for (const char c : piece) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
    hash = (hash ^ (hash >> 16)) * 0x85EBCA6Bu;
    hash = (hash ^ (hash >> 13)) * 0xC2B2AE35u;
    return hash ^ (hash >> 16);
}
// Never kEmptySlot, since an id is below kIdMask.
uint32_t slot_value(uint32_t hash, TokenId id) {
    return (hash & ~kIdMask) | id;
}

size_t char_length(std::string_view text) {
    if (static_cast<uint8_t>(text[0]) < 0x80) return 1;
    return std::max<size_t>(1, utf8_char_length(text));
}

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

// The byte that "<0xHH>" names, or -1.
int named_byte(std::string_view text) {
    if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
    const int high = hex_digit(text[3]);
    const int low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

}  // namespace

// Merges the symbols of one segment at a time; keeps its buffers between segments.
class SpmMerger {
  public:
    explicit SpmMerger(const SpmTokenizer& tokenizer) : tokenizer_(tokenizer) {}

    // REQUIRES: segment is not empty.
    Status append(std::string_view segment, std::vector<TokenId>& ids) {
        segment_ = segment;
        split_into_characters();
        initial_.clear();
        later_.clear();
        initial_.reserve(symbols_.size());
        Candidate candidate;
        for (uint32_t i = 0; i + 2 < symbols_.size(); ++i) {
            if (find_candidate(i, candidate)) initial_.push_back(candidate);
        }
        if (!std::is_sorted(initial_.begin(), initial_.end())) {
            std::sort(initial_.begin(), initial_.end());
        }
        next_initial_ = 0;
        while (pop(candidate)) merge(candidate);
        return emit(ids);
    }

  private:
    // A list in one array, closed by an end mark. A symbol ends where the next one begins.
    struct Symbol {
        uint32_t begin;
        uint32_t previous;  // kNone: first
        uint32_t next;      // 0: merged away
        TokenId token;      // kNoToken: a character that was not looked up yet
    };
    // The symbol `left` and the one behind it spell `token`, as long as they have `size` bytes.
    struct Candidate {
        uint64_t order;  // rank of the token, then left: ties go to the leftmost
        uint32_t size;
        TokenId token;
        uint32_t left() const { return static_cast<uint32_t>(order); }
        bool operator<(const Candidate& other) const { return order < other.order; }
        bool operator>(const Candidate& other) const { return order > other.order; }
    };
    static constexpr uint32_t kNone = UINT32_MAX;

    void split_into_characters() {
        symbols_.clear();
        symbols_.reserve(segment_.size() + 1);
        uint32_t i = 0;
        for (size_t at = 0; at < segment_.size(); ++i) {
            symbols_.push_back({static_cast<uint32_t>(at), i - 1, i + 1, kNoToken});
            at += char_length(segment_.substr(at));
        }
        symbols_.push_back({static_cast<uint32_t>(segment_.size()), i - 1, 0, kNoToken});
    }

    uint32_t end_mark() const { return static_cast<uint32_t>(symbols_.size() - 1); }

    // Bytes of a symbol and the one behind it. REQUIRES: there is one behind it.
    std::string_view pair_text(uint32_t left) const {
        const uint32_t right = symbols_[left].next;
        const uint32_t begin = symbols_[left].begin;
        return segment_.substr(begin, symbols_[symbols_[right].next].begin - begin);
    }

    bool find_candidate(uint32_t left, Candidate& candidate) const {
        const std::string_view piece = pair_text(left);
        const TokenId token = tokenizer_.find(piece);
        if (token == kNoToken) return false;
        const uint64_t order = (uint64_t{tokenizer_.merge_rank(token)} << 32) | left;
        candidate = {order, static_cast<uint32_t>(piece.size()), token};
        return true;
    }
    void offer(uint32_t left) {
        Candidate candidate;
        if (!find_candidate(left, candidate)) return;
        later_.push_back(candidate);
        std::push_heap(later_.begin(), later_.end(), std::greater<>());
    }
    // Takes the candidate that comes first of all.
    bool pop(Candidate& first) {
        const bool any_initial = next_initial_ < initial_.size();
        if (later_.empty() && !any_initial) return false;
        if (later_.empty() || (any_initial && initial_[next_initial_] < later_.front())) {
            first = initial_[next_initial_++];
            return true;
        }
        std::pop_heap(later_.begin(), later_.end(), std::greater<>());
        first = later_.back();
        later_.pop_back();
        return true;
    }

    void merge(const Candidate& best) {
        const uint32_t left = best.left();
        Symbol& symbol = symbols_[left];
        // Stale when either side has merged with something else: then the sizes differ, since
        // symbols only grow.
        if (symbol.next == 0 || symbol.next == end_mark()) return;
        if (pair_text(left).size() != best.size) return;
        Symbol& right = symbols_[symbol.next];
        symbol.token = best.token;
        symbol.next = right.next;
        right.next = 0;
        symbols_[symbol.next].previous = left;
        if (symbol.previous != kNone) offer(symbol.previous);
        if (symbol.next != end_mark()) offer(left);
    }

    Status emit(std::vector<TokenId>& ids) const {
        for (uint32_t i = 0; i != end_mark(); i = symbols_[i].next) {
            const Symbol& symbol = symbols_[i];
            TokenId token = symbol.token;
            if (token == kNoToken) {
                const std::string_view character =
                    segment_.substr(symbol.begin, symbols_[symbol.next].begin - symbol.begin);
                token = tokenizer_.find(character);
                if (token == kNoToken) {
                    TRY(tokenizer_.append_fallback(character, ids));
                    continue;
                }
            }
            ids.push_back(token);
        }
        return {};
    }

    const SpmTokenizer& tokenizer_;
    std::string_view segment_;
    std::vector<Symbol> symbols_;
    // Sorting what is there at first and keeping only the rest in a heap is several times faster
    // on long runs than one heap for all: long heaps are slow, and these stay short.
    std::vector<Candidate> initial_;  // sorted
    size_t next_initial_ = 0;
    std::vector<Candidate> later_;  // a heap, the first on top
};

Status check_sizes(const SpmVocab& vocab) {
    const uint32_t n = vocab.texts.size();
    if (n == 0) return Error{ErrorKind::corrupt, "the vocabulary is empty"};
    if (vocab.scores.size() != n * sizeof(float) || vocab.types.size() != n * sizeof(int32_t)) {
        return Error{
            ErrorKind::corrupt,
            format("the vocabulary has %u tokens, but %zu scores and %zu token types", n,
                   vocab.scores.size() / sizeof(float), vocab.types.size() / sizeof(int32_t))};
    }
    return {};
}

SpmTokenizer::SpmTokenizer(SpmVocab vocab)
    : vocab_(std::move(vocab)),
      slots_(std::bit_ceil(2 * size_t{vocab_.texts.size()} + 2), kEmptySlot),
      pairs_(256 * 256 / 64) {
    byte_tokens_.fill(kNoToken);
}

Result<std::unique_ptr<SpmTokenizer>> SpmTokenizer::create(SpmVocab vocab) {
    TRY(check_sizes(vocab));
    const uint32_t n = vocab.texts.size();
    std::unique_ptr<SpmTokenizer> tokenizer(new SpmTokenizer(std::move(vocab)));
    TRY(tokenizer->check_ids());
    for (TokenId id = 0; id < n; ++id) TRY(tokenizer->add_token(id));
    tokenizer->specials_.finish();
    std::vector<TokenId>& ends = tokenizer->end_of_generation_;
    std::sort(ends.begin(), ends.end());
    return tokenizer;
}

Status SpmTokenizer::check_ids() const {
    const auto check = [this](const char* name, std::optional<TokenId> id) -> Status {
        if (!id || *id < n_vocab()) return {};
        return Error{ErrorKind::corrupt, format("the %s token is %u, but the vocabulary has only %u"
                                                " tokens",
                                                name, *id, n_vocab())};
    };
    TRY(check("BOS", vocab_.bos));
    TRY(check("EOS", vocab_.eos));
    TRY(check("unknown", vocab_.unknown));
    for (const TokenId id : vocab_.end_of_generation) TRY(check("end-of-generation", id));
    return {};
}

Status SpmTokenizer::add_token(TokenId id) {
    const std::string_view text = vocab_.texts[id];
    const int32_t type = load<int32_t>(vocab_.types, id);
    if (type < static_cast<int32_t>(TokenKind::normal) ||
        type > static_cast<int32_t>(TokenKind::byte)) {
        return Error{ErrorKind::corrupt, format("token %u has type %d, which does not exist", id,
                                                static_cast<int>(type))};
    }
    const float score = load<float>(vocab_.scores, id);
    if (score != score) {
        return Error{ErrorKind::corrupt, format("the score of token %u is not a number", id)};
    }
    TokenKind kind = static_cast<TokenKind>(type);
    const EndMark mark = kind == TokenKind::byte ? EndMark::none : find_end_mark(text);
    if (mark == EndMark::always && kind != TokenKind::control) {
        kind = TokenKind::control;
        forced_control_.push_back(id);
    }
    const auto& named = vocab_.end_of_generation;
    const bool ends = (mark != EndMark::none && kind == TokenKind::control) || vocab_.eos == id ||
                      std::find(named.begin(), named.end(), id) != named.end();
    if (ends) end_of_generation_.push_back(id);

    if (kind == TokenKind::byte) {
        TRY(add_byte_token(id, text));
    } else if (kind == TokenKind::normal) {
        add_mergeable(id, text);
    } else if (kind != TokenKind::unused) {
        add_special(id, text, kind);
    }
    return {};
}

Status SpmTokenizer::add_byte_token(TokenId id, std::string_view text) {
    const int byte = named_byte(text);
    if (byte < 0) {
        return Error{ErrorKind::corrupt,
                     format("token %u is a byte token, but \"%s\" names no byte (expected <0x00> to"
                            " <0xFF>)",
                            id, printable(text).c_str())};
    }
    byte_tokens_[static_cast<size_t>(byte)] = id;
    return {};
}

void SpmTokenizer::add_mergeable(TokenId id, std::string_view text) {
    // A space is spelled U+2581 here; a token with a real one can never be met.
    if (text.empty() || text.find(' ') != std::string_view::npos) return;
    const std::string piece = replace_all(text, kSpaceMark, ' ');
    const uint32_t hash = hash_of(piece);
    size_t at = hash & (slots_.size() - 1);
    while (slots_[at] != kEmptySlot) {
        const TokenId other = slots_[at] & kIdMask;
        // The last of equal tokens counts.
        if (slots_[at] == slot_value(hash, other) && vocab_.texts[other] == text) break;
        at = (at + 1) & (slots_.size() - 1);
    }
    slots_[at] = slot_value(hash, id);
    longest_ = std::max(longest_, static_cast<uint32_t>(piece.size()));
    for (size_t i = 1; i < piece.size(); ++i) {
        const size_t pair =
            static_cast<uint8_t>(piece[i - 1]) * size_t{256} + static_cast<uint8_t>(piece[i]);
        pairs_[pair / 64] |= uint64_t{1} << (pair % 64);
    }
}

void SpmTokenizer::add_special(TokenId id, std::string_view text, TokenKind kind) {
    SpecialTokens::Options options;
    options.always = kind == TokenKind::user_defined;
    options.strips_space_behind =
        vocab_.strip_after_special && text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
    // Some converters leave U+2581 in user-defined tokens, others write the space it stands for.
    if (options.always && text.find(kSpaceMark) != std::string_view::npos) {
        specials_.add_owned(replace_all(text, kSpaceMark, ' '), id, options);
    } else {
        specials_.add(text, id, options);
    }
}

// Does the token's text say `piece`, a space being spelled U+2581?
bool SpmTokenizer::spells(TokenId id, std::string_view piece) const {
    const std::string_view text = vocab_.texts[id];
    size_t at = 0;
    for (const char c : piece) {
        if (c == ' ') {
            if (text.substr(at, kSpaceMark.size()) != kSpaceMark) return false;
            at += kSpaceMark.size();
        } else {
            if (at == text.size() || text[at] != c) return false;
            ++at;
        }
    }
    return at == text.size();
}

TokenId SpmTokenizer::find(std::string_view piece) const {
    if (piece.size() > longest_) return kNoToken;
    const uint32_t hash = hash_of(piece);
    for (size_t at = hash & (slots_.size() - 1); slots_[at] != kEmptySlot;
         at = (at + 1) & (slots_.size() - 1)) {
        const TokenId id = slots_[at] & kIdMask;
        if (slots_[at] == slot_value(hash, id) && spells(id, piece)) return id;
    }
    return kNoToken;
}

bool SpmTokenizer::joins(char left, char right) const {
    const size_t pair = static_cast<uint8_t>(left) * size_t{256} + static_cast<uint8_t>(right);
    return (pairs_[pair / 64] >> (pair % 64)) & 1;
}

uint32_t SpmTokenizer::merge_rank(TokenId id) const {
    const float score = load<float>(vocab_.scores, id);
    if (score == 0) return 0x7FFFFFFF;  // both zeros are equal
    // Bits of a float as integers: positive ones ascend, negative ones descend.
    const uint32_t bits = std::bit_cast<uint32_t>(score);
    return bits >> 31 ? bits : 0x7FFFFFFF - bits;
}

Status SpmTokenizer::append_fallback(std::string_view character, std::vector<TokenId>& ids) const {
    const auto has_token = [this](char c) {
        return byte_tokens_[static_cast<uint8_t>(c)] != kNoToken;
    };
    if (std::all_of(character.begin(), character.end(), has_token)) {
        for (const char c : character) ids.push_back(byte_tokens_[static_cast<uint8_t>(c)]);
    } else if (vocab_.unknown) {
        ids.push_back(*vocab_.unknown);
    } else {
        return Error{ErrorKind::unsupported,
                     format("the vocabulary has no token for \"%s\", and none for unknown text",
                            printable(character).c_str())};
    }
    return {};
}

Status SpmTokenizer::append_plain(std::string_view text, std::vector<TokenId>& ids) const {
    SpmMerger merger(*this);
    size_t begin = 0;
    for (size_t at = 0; at < text.size();) {
        at += char_length(text.substr(at));
        if (at < text.size() && joins(text[at - 1], text[at])) continue;
        TRY(merger.append(text.substr(begin, at - begin), ids));
        begin = at;
    }
    return {};
}

Result<std::vector<TokenId>> SpmTokenizer::encode(std::string_view text,
                                                  const EncodeOptions& options) const {
    if (text.size() > kMaxText) {
        return Error{ErrorKind::invalid,
                     format("the text has %s; at most %s can be tokenized at once",
                            format_bytes(text.size()).c_str(), format_bytes(kMaxText).c_str())};
    }
    std::vector<TokenId> ids;
    if (options.add_special && add_bos()) ids.push_back(*vocab_.bos);
    bool at_start = true;
    for (const TextFragment& fragment : specials_.split(text, options.parse_special)) {
        if (fragment.token != kNoToken) {
            ids.push_back(fragment.token);
            at_start = true;
            continue;
        }
        std::string plain(vocab_.add_space_prefix && at_start ? " " : "");
        plain += text.substr(fragment.begin, fragment.end - fragment.begin);
        if (plain.find(kSpaceMark) != std::string::npos) {
            plain = replace_all(plain, kSpaceMark, ' ');
        }
        TRY(append_plain(plain, ids));
        at_start = false;
    }
    if (options.add_special && vocab_.add_eos && vocab_.eos) ids.push_back(*vocab_.eos);
    return ids;
}

std::string SpmTokenizer::token_bytes(TokenId id, bool render_special) const {
    const std::string_view text = vocab_.texts[id];
    switch (token_kind(id)) {
        case TokenKind::normal:
        case TokenKind::user_defined:
            return replace_all(text, kSpaceMark, ' ');
        case TokenKind::byte:
            return std::string(1, static_cast<char>(named_byte(text)));
        case TokenKind::unknown:
        case TokenKind::control:
        case TokenKind::unused:
            break;
    }
    return std::string(render_special ? text : std::string_view());
}

TokenKind SpmTokenizer::token_kind(TokenId id) const {
    if (std::binary_search(forced_control_.begin(), forced_control_.end(), id)) {
        return TokenKind::control;
    }
    return static_cast<TokenKind>(load<int32_t>(vocab_.types, id));
}

bool SpmTokenizer::is_end_of_generation(TokenId id) const {
    return std::binary_search(end_of_generation_.begin(), end_of_generation_.end(), id);
}

}  // namespace picolm
