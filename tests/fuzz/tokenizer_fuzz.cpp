// Two kinds of input. A text for one of four fixed vocabularies, and a vocabulary with a text: it
// loads or is refused, through a GGUF file and all. Either way tokens stay in range, decoding gives
// the text back, and short texts come out as the slow reference encoder has them.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>

#include "base/utf8.h"
#include "gguf/gguf.h"
#include "text/end_marks.h"
#include "text/reference_spm.h"
#include "text/small_vocab.h"
#include "text/stream_decoder.h"

namespace picolm {
namespace {

using testing::ReferenceSpm;
using testing::SmallVocab;

void require(bool promise) {
    if (!promise) std::abort();
}

bool valid_utf8(std::string_view text) {
    while (!text.empty()) {
        const size_t n = utf8_char_length(text);
        if (n == 0) return false;
        text.remove_prefix(n);
    }
    return true;
}

struct Facts {
    bool inverts;                   // decode() is the inverse of encode()
    const ReferenceSpm* reference;  // nullptr: none for this vocabulary
};

void check(const Tokenizer& tokenizer, const Facts& facts, std::string_view text,
           Tokenizer::EncodeOptions options) {
    const auto encoded = tokenizer.encode(text, options);
    if (!encoded) {
        require(!facts.inverts && encoded.error().kind == ErrorKind::unsupported);
        return;
    }
    const std::vector<TokenId>& ids = *encoded;
    for (const TokenId id : ids) {
        require(id < tokenizer.n_vocab());
        (void)tokenizer.is_end_of_generation(id);
    }
    if (facts.reference && text.size() <= 96) {
        require(ids == facts.reference->encode(text, options));
    }
    const bool plain = !options.add_special && !options.parse_special;
    if (facts.inverts && plain && text.find("\xE2\x96\x81") == std::string_view::npos) {
        require(tokenizer.decode(ids) == text);
    }
    StreamDecoder decoder(tokenizer, true);
    std::string streamed;
    for (const TokenId id : ids) {
        streamed += decoder.push(id);
        require(valid_utf8(streamed));
        if (streamed.size() > 512) streamed.clear();
    }
    require(valid_utf8(decoder.finish()));
    (void)tokenizer.decode(ids, true);
}

// What the fixed vocabularies have in common: every kind of token, overlapping special ones, spaces
// inside words, a duplicate.
SmallVocab fixed_vocab(bool space_prefix, bool strips) {
    SmallVocab vocab = SmallVocab::standard();
    vocab.add_space_prefix = space_prefix;
    vocab.strip_after_special = strips;
    vocab.add_eos = strips;
    vocab.add("ab", 0, TokenKind::user_defined);
    vocab.add("abc", 0, TokenKind::control);
    vocab.add("bc", 0, TokenKind::user_defined);
    vocab.add(" \n", 0, TokenKind::user_defined);
    vocab.add("tt", 0, TokenKind::unused);
    vocab.add("aa", 3);
    vocab.add("e\xE2\x96\x81", -2.5f);
    vocab.add("\xE2\x96", 1);
    return vocab;
}

struct Fixed {
    explicit Fixed(SmallVocab v)
        : vocab(std::move(v)), reference(vocab), tokenizer(std::move(*vocab.create())) {}
    SmallVocab vocab;
    ReferenceSpm reference;
    std::unique_ptr<SpmTokenizer> tokenizer;
};

void check_text(FuzzedDataProvider& data) {
    static const Fixed* const kFixed[] = {
        new Fixed(fixed_vocab(false, false)), new Fixed(fixed_vocab(false, true)),
        new Fixed(fixed_vocab(true, false)), new Fixed(fixed_vocab(true, true))};
    const Fixed& fixed = *kFixed[data.ConsumeIntegral<uint8_t>() % 4];
    const Tokenizer::EncodeOptions options{data.ConsumeBool(), data.ConsumeBool()};
    const bool inverts = !fixed.vocab.strip_after_special;
    check(*fixed.tokenizer, {inverts, &fixed.reference}, data.ConsumeRemainingBytesAsString(),
          options);
}

struct FuzzedVocab {
    SmallVocab vocab;
    bool has_bytes = false;
    GgufWriter writer;
};

void add_tokens(FuzzedDataProvider& data, FuzzedVocab& out) {
    static const SmallVocab kBytes = [] {
        SmallVocab vocab;
        vocab.add_bytes();
        return vocab;
    }();
    out.has_bytes = data.ConsumeBool();
    if (out.has_bytes) out.vocab = kBytes;
    const size_t n = data.ConsumeIntegralInRange<size_t>(0, 40);
    for (size_t i = 0; i < n; ++i) {
        const int type = data.ConsumeIntegralInRange<int>(0, 15);
        const float score = static_cast<float>(data.ConsumeIntegralInRange<int>(-8, 8));
        // A '_' stands for U+2581, which the mutator hardly ever makes.
        std::string text;
        for (const char c : data.ConsumeRandomLengthString(12)) {
            text += c == '_' ? std::string("\xE2\x96\x81") : std::string(1, c);
        }
        // Types 1..6 as they are, the rest mostly normal, and rarely one that does not exist.
        const int kind = type >= 1 && type <= 6 ? type : type == 15 ? 7 : 1;
        out.vocab.add(std::move(text), score, static_cast<TokenKind>(kind));
    }
}

void put_options(FuzzedDataProvider& data, FuzzedVocab& out) {
    SmallVocab& vocab = out.vocab;
    GgufWriter& writer = out.writer;
    const auto id = [&](const char* key) {
        std::optional<TokenId> value;
        if (!data.ConsumeBool()) {
            writer.put_u32(key, UINT32_MAX);
            return value;
        }
        value = data.ConsumeIntegral<uint16_t>() % 512;
        writer.put_u32(key, *value);
        return value;
    };
    vocab.bos = id("tokenizer.ggml.bos_token_id");
    vocab.eos = id("tokenizer.ggml.eos_token_id");
    vocab.unknown = id("tokenizer.ggml.unknown_token_id");
    if (data.ConsumeBool()) id("tokenizer.ggml.eot_token_id");
    const auto flag = [&](const char* key, bool& value) {
        value = data.ConsumeBool();
        writer.put_bool(key, value);
    };
    flag("tokenizer.ggml.add_bos_token", vocab.add_bos);
    flag("tokenizer.ggml.add_eos_token", vocab.add_eos);
    flag("tokenizer.ggml.add_space_prefix", vocab.add_space_prefix);
    vocab.strip_after_special = data.ConsumeBool();
    if (vocab.strip_after_special) writer.put_string("general.name", "Tiny PHI3");
}

// One of the arrays or keys is missing, or is something else.
void put_damaged(FuzzedDataProvider& data, GgufWriter& writer, const SmallVocab& vocab) {
    const char* const keys[] = {"tokenizer.ggml.model", "tokenizer.ggml.tokens",
                                "tokenizer.ggml.scores", "tokenizer.ggml.token_type",
                                "tokenizer.ggml.bos_token_id"};
    const char* victim = keys[data.ConsumeIntegral<uint8_t>() % std::size(keys)];
    for (const char* key : keys) {
        if (key != victim) {
            if (key == keys[0]) writer.put_string(key, "llama");
            if (key == keys[1]) writer.put_strings(key, vocab.tokens);
            if (key == keys[2]) writer.put_f32s(key, vocab.scores);
            if (key == keys[3]) writer.put_i32s(key, vocab.types);
            continue;
        }
        switch (data.ConsumeIntegral<uint8_t>() % 6) {
            case 0:
                break;
            case 1:
                writer.put_u32(key, data.ConsumeIntegral<uint32_t>());
                break;
            case 2:
                writer.put_string(key, data.ConsumeRandomLengthString(8));
                break;
            case 3:
                writer.put_f32s(key, std::vector<float>(data.ConsumeIntegral<uint8_t>() % 4));
                break;
            case 4:
                writer.put_i32s(key, std::vector<int32_t>(data.ConsumeIntegral<uint8_t>() % 4));
                break;
            case 5:
                writer.put_strings(key, {});
                break;
        }
    }
}

bool has_mistyped_mark(const SmallVocab& vocab) {
    for (size_t i = 0; i < vocab.tokens.size(); ++i) {
        if (vocab.types[i] == static_cast<int32_t>(TokenKind::byte)) continue;
        if (find_end_mark(vocab.tokens[i]) == EndMark::always) return true;
    }
    return false;
}

void check_vocabulary(FuzzedDataProvider& data) {
    FuzzedVocab fuzzed;
    add_tokens(data, fuzzed);
    const bool damaged = data.ConsumeIntegralInRange<int>(0, 7) == 7;
    if (damaged) {
        put_damaged(data, fuzzed.writer, fuzzed.vocab);
    } else {
        if (!fuzzed.has_bytes) fuzzed.writer = fuzzed.vocab.writer();
        put_options(data, fuzzed);
    }
    // The way through a file is slow where there are byte tokens; the others take it.
    std::vector<uint8_t> bytes;
    std::optional<GgufFile> file;
    std::unique_ptr<Tokenizer> tokenizer;
    if (fuzzed.has_bytes && !damaged) {
        auto created = fuzzed.vocab.create();
        if (!created) return;
        tokenizer = std::move(*created);
    } else {
        bytes = fuzzed.writer.to_bytes();
        auto parsed = GgufFile::parse(bytes, "FILE");
        require(parsed.has_value());
        file.emplace(std::move(*parsed));
        auto loaded = load_tokenizer(*file);
        if (!loaded) {
            require(loaded.error().text.find("FILE") != std::string::npos);
            return;
        }
        tokenizer = std::move(*loaded);
    }
    const Tokenizer::EncodeOptions options{data.ConsumeBool(), data.ConsumeBool()};
    const std::string text = data.ConsumeRemainingBytesAsString();
    const bool complete = fuzzed.has_bytes && !damaged;
    std::unique_ptr<ReferenceSpm> reference;
    if (complete && !has_mistyped_mark(fuzzed.vocab)) {
        reference = std::make_unique<ReferenceSpm>(fuzzed.vocab);
    }
    const bool inverts = complete && !fuzzed.vocab.strip_after_special;
    check(*tokenizer, {inverts, reference.get()}, text, options);
    for (TokenId id = fuzzed.has_bytes ? 256 : 0; id < tokenizer->n_vocab(); ++id) {
        (void)tokenizer->token_bytes(id, id % 2 == 0);
    }
}

}  // namespace
}  // namespace picolm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
    FuzzedDataProvider data(bytes, size);
    if (data.ConsumeBool()) {
        picolm::check_vocabulary(data);
    } else {
        picolm::check_text(data);
    }
    return 0;
}
