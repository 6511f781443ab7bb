#include "model/spec.h"

#include <algorithm>

#include <cmath>

#include "base/format.h"

namespace picolm {
namespace {

// A row of the architecture table.
struct Architecture {
    const char* name;
    RopeKind rope_kind;
};
constexpr Architecture kArchitectures[] = {
    {"llama", RopeKind::norm},
};

std::string known_architectures() {
    std::string list;
    for (const Architecture& a : kArchitectures)
        list.append(list.empty() ? "" : ", ").append(a.name);
    return list;
}

// Reads the keys of one architecture, with the file's name in every message.
class SpecReader {
  public:
    SpecReader(const GgufFile& file, std::string arch) : file_(file), arch_(std::move(arch)) {}

    bool has(const char* suffix) const { return file_.find(key(suffix)) != nullptr; }
    std::string key(const char* suffix) const { return arch_ + "." + suffix; }

    Error wrong(const std::string& what) const {
        return {ErrorKind::corrupt, format("%s: %s", file_.name().c_str(), what.c_str())};
    }

    // A count within [low, high]; `fallback` when the key is absent, or an error without one.
    Result<uint32_t> count(const char* suffix, uint64_t low, uint64_t high,
                           std::optional<uint32_t> fallback = std::nullopt) const {
        TRY(const std::optional<uint64_t> value, file_.get_uint(key(suffix)));
        if (!value && fallback) return *fallback;
        if (!value) return wrong(format("the key %s is missing", key(suffix).c_str()));
        if (*value < low || *value > high)
            return wrong(format("%s is %llu; it must lie between %llu and %llu",
                                key(suffix).c_str(), static_cast<unsigned long long>(*value),
                                static_cast<unsigned long long>(low),
                                static_cast<unsigned long long>(high)));
        return static_cast<uint32_t>(*value);
    }

    // A number within [low, high].
    Result<double> number(const char* suffix, double low, double high,
                          std::optional<double> fallback) const {
        TRY(const std::optional<double> value, file_.get_float(key(suffix)));
        if (!value && fallback) return *fallback;
        if (!value) return wrong(format("the key %s is missing", key(suffix).c_str()));
        if (!(*value >= low) || !(*value <= high))
            return wrong(format("%s is %g; it must lie between %g and %g", key(suffix).c_str(),
                                *value, low, high));
        return *value;
    }

  private:
    const GgufFile& file_;
    std::string arch_;
};

// Keys that change the computation in a way this program does not follow, unless they hold the
// value that changes nothing.
Status refuse_unknown_terms(const GgufFile& file, const SpecReader& in) {
    struct Term {
        const char* suffix;
        double neutral;
    };
    constexpr Term kTerms[] = {
        {"expert_count", 0},
        {"attention.causal", 1},
        {"use_parallel_residual", 0},
        {"attention.scale", 0},
        {"attn_logit_softcapping", 0},
        {"final_logit_softcapping", 0},
        {"logit_scale", 1},
        {"residual_scale", 1},
        {"embedding_scale", 1},
        {"attention.clamp_kqv", 0},
        {"attention.max_alibi_bias", 0},
        {"attention.sliding_window", 0},
        {"rope.scaling.attn_factor", 1},
    };
    for (const Term& term : kTerms) {
        const MetaValue* value = file.find(in.key(term.suffix));
        if (!value) continue;
        std::optional<double> number;
        if (value->type == MetaType::f32 || value->type == MetaType::f64) {
            TRY(number, file.get_float(in.key(term.suffix)));
        } else {
            TRY(const std::optional<uint64_t> whole, file.get_uint(in.key(term.suffix)));
            number = static_cast<double>(*whole);
        }
        if (*number != term.neutral)
            return Error{
                ErrorKind::unsupported,
                format("%s: %s = %g is not supported; ignoring it would give wrong answers",
                       file.name().c_str(), in.key(term.suffix).c_str(), *number)};
    }
    return {};
}

Status read_sizes(const SpecReader& in, ModelSpec& spec) {
    TRY(spec.n_embd, in.count("embedding_length", 1, 1 << 17));
    TRY(spec.n_layer, in.count("block_count", 1, 4096));
    TRY(spec.n_ff, in.count("feed_forward_length", 1, 1 << 20));
    TRY(spec.n_ctx_train, in.count("context_length", 1, 1 << 24));
    TRY(spec.n_head, in.count("attention.head_count", 1, 1 << 12));
    TRY(spec.n_head_kv, in.count("attention.head_count_kv", 1, 1 << 12, spec.n_head));
    if (spec.n_head % spec.n_head_kv != 0)
        return in.wrong(
            format("%u query heads cannot share %u KV heads", spec.n_head, spec.n_head_kv));
    std::optional<uint32_t> even_split;
    if (spec.n_embd % spec.n_head == 0) even_split = spec.n_embd / spec.n_head;
    if (!even_split && !in.has("attention.key_length"))
        return in.wrong(
            format("an embedding of %u cannot be split over %u heads", spec.n_embd, spec.n_head));
    TRY(spec.n_embd_head_k, in.count("attention.key_length", 1, kMaxHeadSize, even_split));
    TRY(spec.n_embd_head_v, in.count("attention.value_length", 1, kMaxHeadSize, even_split));
    if (std::max(spec.n_embd_head_k, spec.n_embd_head_v) > kMaxHeadSize)
        return in.wrong(format("a head of %u elements is larger than %u",
                               std::max(spec.n_embd_head_k, spec.n_embd_head_v), kMaxHeadSize));
    TRY(const double eps, in.number("attention.layer_norm_rms_epsilon", 1e-30, 1.0, std::nullopt));
    spec.norm_rms_eps = static_cast<float>(eps);
    return {};
}

Status read_rope(const GgufFile& file, const SpecReader& in, ModelSpec& spec) {
    TRY(spec.n_rot, in.count("rope.dimension_count", 0, spec.n_embd_head_k, spec.n_embd_head_k));
    if (spec.n_rot % 2 != 0)
        return in.wrong(format("%s is %u; it must be even", in.key("rope.dimension_count").c_str(),
                               spec.n_rot));
    TRY(spec.rope_freq_base, in.number("rope.freq_base", 1.0, 1e12, 10000.0));
    TRY(const std::optional<std::string_view> kind, file.get_string(in.key("rope.scaling.type")));
    TRY(const double factor, in.number("rope.scaling.factor", 0.01, 1e6, 1.0));
    TRY(const double scale_linear, in.number("rope.scale_linear", 0.01, 1e6, 1.0));
    if (kind && *kind != "none" && *kind != "linear")
        return Error{ErrorKind::unsupported,
                     format("%s: rope scaling \"%s\" is not supported; known kinds: none, linear",
                            file.name().c_str(), printable(*kind).c_str())};
    if (kind == "none") return {};
    spec.rope_freq_scale = 1.0 / (kind == "linear" || factor != 1.0 ? factor : scale_linear);
    return {};
}

// The number of tokens: the rows of the embedding, which a vocab_size key may only confirm.
Status read_vocab_size(const GgufFile& file, const SpecReader& in, ModelSpec& spec) {
    const TensorInfo* embedding = file.tensor("token_embd.weight");
    if (!embedding) return in.wrong("the tensor token_embd.weight is missing");
    const uint64_t rows = embedding->dims[1];
    if (rows > (1u << 24)) return in.wrong("token_embd.weight has too many rows");
    TRY(spec.n_vocab, in.count("vocab_size", 1, 1 << 24, static_cast<uint32_t>(rows)));
    if (spec.n_vocab != rows)
        return in.wrong(format("%s is %u, but token_embd.weight has %llu rows",
                               in.key("vocab_size").c_str(), spec.n_vocab,
                               static_cast<unsigned long long>(rows)));
    const MetaValue* tokens = file.find("tokenizer.ggml.tokens");
    if (tokens && tokens->type == MetaType::array && tokens->count != rows)
        return in.wrong(format(
            "the vocabulary has %llu tokens, but token_embd.weight has %llu rows",
            static_cast<unsigned long long>(tokens->count), static_cast<unsigned long long>(rows)));
    return {};
}

}  // namespace

Result<ModelSpec> read_spec(const GgufFile& file) {
    TRY(const std::optional<std::string_view> arch, file.get_string("general.architecture"));
    if (!arch)
        return Error{ErrorKind::corrupt,
                     format("%s: the key general.architecture is missing", file.name().c_str())};
    const Architecture* row = nullptr;
    for (const Architecture& a : kArchitectures)
        if (*arch == a.name) row = &a;
    if (!row)
        return Error{
            ErrorKind::unsupported,
            format("%s: the architecture \"%s\" is not supported; this program runs: %s",
                   file.name().c_str(), printable(*arch).c_str(), known_architectures().c_str())};
    ModelSpec spec;
    spec.arch = *arch;
    spec.rope_kind = row->rope_kind;
    TRY(const std::optional<std::string_view> name, file.get_string("general.name"));
    if (name) spec.name = printable(*name);
    const SpecReader in(file, spec.arch);
    TRY(refuse_unknown_terms(file, in));
    TRY(read_sizes(in, spec));
    TRY(read_rope(file, in, spec));
    TRY(read_vocab_size(file, in, spec));
    return spec;
}

}  // namespace picolm
