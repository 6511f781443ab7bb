// From the metadata of a GGUF file to the kind of tokenizer it asks for.
#include <algorithm>
#include <cctype>

#include "base/format.h"
#include "text/spm.h"
#include "text/tokenizer.h"

namespace picolm {
namespace {

constexpr const char* kKnownKinds = "llama (SentencePiece)";
constexpr uint32_t kNoId = UINT32_MAX;  // converters write it for "there is none"

template <typename T>
Result<T> in_file(const GgufFile& file, Result<T> result) {
    if (!result) result.error().text.insert(0, file.name() + ": ");
    return result;
}

Error missing(const GgufFile& file, const char* key) {
    return {ErrorKind::corrupt,
            format("%s: the tokenizer is incomplete, %s is missing", file.name().c_str(), key)};
}

Result<Bytes> present(const GgufFile& file, const char* key, Result<std::optional<Bytes>> array) {
    TRY(const std::optional<Bytes> bytes, std::move(array));
    if (!bytes) return missing(file, key);
    return *bytes;
}

Result<TokenTexts> read_texts(const GgufFile& file) {
    const char* key = "tokenizer.ggml.tokens";
    const MetaValue* value = file.find(key);
    if (!value) return missing(file, key);
    if (value->type != MetaType::array || value->element != MetaType::string) {
        return Error{ErrorKind::corrupt,
                     format("%s: %s is not an array of strings", file.name().c_str(), key)};
    }
    return in_file(file, TokenTexts::parse(value->data, value->count));
}

Result<std::optional<TokenId>> token_id(const GgufFile& file, const char* key, uint32_t n_vocab) {
    TRY(const std::optional<uint64_t> id, file.get_uint(key));
    if (!id || *id == kNoId) return std::optional<TokenId>();
    if (*id >= n_vocab) {
        return Error{
            ErrorKind::corrupt,
            format("%s: %s is %llu, but the vocabulary has only %u tokens", file.name().c_str(),
                   key, static_cast<unsigned long long>(*id), n_vocab)};
    }
    return std::optional<TokenId>(static_cast<TokenId>(*id));
}

// As token_id(); a file without the key means the id that SentencePiece gives by default, if the
// token there is of the right kind.
Result<std::optional<TokenId>> token_id_or(const GgufFile& file, const char* key,
                                           const SpmVocab& vocab, TokenId fallback,
                                           TokenKind kind) {
    if (file.find(key)) return token_id(file, key, vocab.texts.size());
    std::optional<TokenId> id;
    if (fallback < vocab.texts.size() && vocab.types[fallback * sizeof(int32_t)] == uint8_t(kind)) {
        id = fallback;
    }
    return id;
}

Result<bool> flag(const GgufFile& file, const char* key, bool otherwise) {
    TRY(const std::optional<bool> value, file.get_bool(key));
    return value.value_or(otherwise);
}

bool is_phi3(std::string_view model_name) {
    std::string name(model_name);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
}

Result<SpmVocab> read_spm_vocab(const GgufFile& file) {
    SpmVocab vocab;
    TRY(vocab.texts, read_texts(file));
    const uint32_t n = vocab.texts.size();
    const char* scores = "tokenizer.ggml.scores";
    const char* types = "tokenizer.ggml.token_type";
    TRY(vocab.scores, present(file, scores, file.get_f32_array(scores)));
    TRY(vocab.types, present(file, types, file.get_i32_array(types)));
    TRY(in_file(file, check_sizes(vocab)));

    TRY(vocab.bos, token_id_or(file, "tokenizer.ggml.bos_token_id", vocab, 1, TokenKind::control));
    TRY(vocab.eos, token_id_or(file, "tokenizer.ggml.eos_token_id", vocab, 2, TokenKind::control));
    TRY(vocab.unknown,
        token_id_or(file, "tokenizer.ggml.unknown_token_id", vocab, 0, TokenKind::unknown));
    for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
        TRY(const std::optional<TokenId> id, token_id(file, key, n));
        if (id) vocab.end_of_generation.push_back(*id);
    }
    TRY(vocab.add_bos, flag(file, "tokenizer.ggml.add_bos_token", true));
    TRY(vocab.add_eos, flag(file, "tokenizer.ggml.add_eos_token", false));
    TRY(vocab.add_space_prefix, flag(file, "tokenizer.ggml.add_space_prefix", true));
    TRY(const std::optional<std::string_view> name, file.get_string("general.name"));
    vocab.strip_after_special = name && is_phi3(*name);
    return vocab;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> load_tokenizer(const GgufFile& file) {
    TRY(const std::optional<std::string_view> kind, file.get_string("tokenizer.ggml.model"));
    if (!kind) {
        return Error{
            ErrorKind::corrupt,
            format("%s holds no tokenizer (tokenizer.ggml.model is missing)", file.name().c_str())};
    }
    if (*kind != "llama") {
        return Error{ErrorKind::unsupported,
                     format("%s: tokenizers of kind \"%s\" are not supported; known kinds: %s",
                            file.name().c_str(), printable(*kind).c_str(), kKnownKinds)};
    }
    TRY(SpmVocab vocab, read_spm_vocab(file));
    TRY(std::unique_ptr<SpmTokenizer> tokenizer,
        in_file(file, SpmTokenizer::create(std::move(vocab))));
    return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

}  // namespace picolm
