#include "model/random_model.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <thread>

#include "base/format.h"
#include "base/hash.h"
#include "base/thread_pool.h"
#include "gguf/writer.h"
#include "kernels/quantize.h"
#include "model/quant_mix.h"
#include "model/random_vocab.h"

namespace picolm {
namespace {

// Standard deviation of the logits: near that of a trained model, so that sampling has something
// to choose and greedy ids do not hang on the last bit.
constexpr double kLogitSpread = 3.0;

// Larger matrices draw their blocks from a pool of this many weights: quantising a thousand million
// weights one by one would take minutes, and buys nothing where weights mean nothing.
constexpr uint64_t kPoolWeights = 1 << 20;
constexpr uint64_t kPieceWeights = 1 << 15;  // what a thread makes at a time
constexpr uint32_t kRoundPieces = 64;        // what is kept in memory before it is written

uint64_t scramble(uint64_t x) {
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9;
    x ^= x >> 27;
    x *= 0x94D049BB133111EB;
    return x ^ (x >> 31);
}

// Number i of the stream `key`; any i at any time, so that threads need no order.
uint64_t random_bits(uint64_t key, uint64_t i) {
    return scramble(key + (i + 1) * 0x9E3779B97F4A7C15);
}

// Mean 0, standard deviation 1, within 3.5: the sum of four 16-bit numbers.
float random_normal(uint64_t key, uint64_t i) {
    const uint64_t bits = random_bits(key, i);
    const int32_t sum = static_cast<int32_t>((bits & 0xFFFF) + ((bits >> 16) & 0xFFFF) +
                                             ((bits >> 32) & 0xFFFF) + (bits >> 48));
    return static_cast<float>(sum - 2 * 65535) * (1.0f / 37837.23f);
}

uint64_t stream_key(uint64_t seed, std::string_view name) {
    return scramble(seed ^ hash64({reinterpret_cast<const uint8_t*>(name.data()), name.size()}));
}

// One matrix, made in units (a block's worth of a row, or a whole row) that stand alone.
class MatrixFill {
  public:
    MatrixFill(ThreadPool& threads, TensorType type, uint64_t n_row, uint64_t n_rows,
               float deviation, uint64_t key)
        : threads_(threads), type_(type), deviation_(deviation), key_(key) {
        unit_ = n_row % 256 == 0 ? 256 : n_row;
        unit_bytes_ = row_bytes(type, static_cast<size_t>(unit_));
        n_units_ = n_row / unit_ * n_rows;
        units_per_piece_ = std::max<uint64_t>(1, kPieceWeights / unit_);
    }

    Status operator()(const GgufWriter::Sink& sink) const {
        const uint64_t pool_units = std::max<uint64_t>(1, kPoolWeights / unit_);
        if (n_units_ <= pool_units)
            return produce(n_units_, sink,
                           [&](uint64_t unit, uint8_t* out) { make_unit(unit, out); });
        std::vector<uint8_t> pool;
        TRY(produce(
            pool_units,
            [&](Bytes bytes) -> Status {
                pool.insert(pool.end(), bytes.begin(), bytes.end());
                return {};
            },
            [&](uint64_t unit, uint8_t* out) { make_unit(unit, out); }));
        return produce(n_units_, sink, [&](uint64_t unit, uint8_t* out) {
            const uint64_t from = random_bits(~key_, unit) % pool_units;
            std::copy_n(pool.data() + from * unit_bytes_, unit_bytes_, out);
        });
    }

  private:
    // Hands units 0..n to the sink in order; `make` is called from several threads.
    template <typename Make>
    Status produce(uint64_t n, const GgufWriter::Sink& sink, const Make& make) const {
        std::vector<uint8_t> round(
            static_cast<size_t>(std::min(n, units_per_piece_ * kRoundPieces) * unit_bytes_));
        for (uint64_t start = 0; start < n; start += units_per_piece_ * kRoundPieces) {
            const uint64_t end = std::min(n, start + units_per_piece_ * kRoundPieces);
            const uint64_t n_pieces = (end - start + units_per_piece_ - 1) / units_per_piece_;
            threads_.run(static_cast<uint32_t>(n_pieces), [&](uint32_t piece, unsigned) {
                const uint64_t first = start + piece * units_per_piece_;
                const uint64_t last = std::min(end, first + units_per_piece_);
                for (uint64_t unit = first; unit < last; ++unit)
                    make(unit, round.data() + (unit - start) * unit_bytes_);
            });
            TRY(sink(Bytes(round).first(static_cast<size_t>((end - start) * unit_bytes_))));
        }
        return {};
    }

    void make_unit(uint64_t unit, uint8_t* out) const {
        std::vector<float> x(static_cast<size_t>(unit_));
        for (size_t i = 0; i < x.size(); ++i)
            x[i] = random_normal(key_, unit * unit_ + i) * deviation_;
        quantize_row(type_, x.data(), out, x.size());
    }

    ThreadPool& threads_;
    TensorType type_;
    float deviation_;
    uint64_t key_;
    uint64_t unit_;
    size_t unit_bytes_;
    uint64_t n_units_;
    uint64_t units_per_piece_;
};

// Puts a model together: what is in the file is decided here, in the order of the file.
class ModelMaker {
  public:
    ModelMaker(const RandomModelSpec& spec, const QuantMix& mix)
        : spec_(spec),
          mix_(mix),
          head_dim_(spec.head_dim ? spec.head_dim : spec.n_embd / spec.n_head),
          rope_dim_(spec.rope_dim ? spec.rope_dim : head_dim_),
          threads_(std::clamp(std::thread::hardware_concurrency(), 1u, 16u)) {}

    // Makes tensors while it writes, hence no longer than this object.
    const GgufWriter& make() {
        put_hyperparameters();
        put_vocab();
        add_tensors();
        return writer_;
    }

  private:
    void put_hyperparameters() {
        const auto key = [&](const char* name) { return spec_.arch + "." + name; };
        writer_.put_string("general.architecture", spec_.arch);
        writer_.put_string("general.name", spec_.name);
        if (mix_.file_type) writer_.put_u32("general.file_type", *mix_.file_type);
        writer_.put_u32("general.quantization_version", 2);
        writer_.put_u32(key("vocab_size"), spec_.n_vocab);
        writer_.put_u32(key("context_length"), spec_.n_ctx);
        writer_.put_u32(key("embedding_length"), spec_.n_embd);
        writer_.put_u32(key("block_count"), spec_.n_layer);
        writer_.put_u32(key("feed_forward_length"), spec_.n_ff);
        writer_.put_u32(key("attention.head_count"), spec_.n_head);
        writer_.put_u32(key("attention.head_count_kv"), spec_.n_head_kv);
        writer_.put_f32(key("attention.layer_norm_rms_epsilon"), spec_.rms_eps);
        if (spec_.head_dim) {
            writer_.put_u32(key("attention.key_length"), spec_.head_dim);
            writer_.put_u32(key("attention.value_length"), spec_.head_dim);
        }
        writer_.put_u32(key("rope.dimension_count"), rope_dim_);
        writer_.put_f32(key("rope.freq_base"), spec_.rope_base);
        if (spec_.rope_scale != 1.0f) {
            writer_.put_string(key("rope.scaling.type"), "linear");
            writer_.put_f32(key("rope.scaling.factor"), spec_.rope_scale);
        }
    }

    void put_vocab() {
        const RandomVocab vocab = random_vocab(spec_.n_vocab);
        writer_.put_string("tokenizer.ggml.model", "llama");
        writer_.put_string("tokenizer.ggml.pre", "default");
        writer_.put_strings("tokenizer.ggml.tokens", vocab.tokens);
        writer_.put_f32s("tokenizer.ggml.scores", vocab.scores);
        writer_.put_i32s("tokenizer.ggml.token_type", vocab.types);
        writer_.put_u32("tokenizer.ggml.bos_token_id", 1);
        writer_.put_u32("tokenizer.ggml.eos_token_id", 2);
        writer_.put_u32("tokenizer.ggml.unknown_token_id", 0);
        writer_.put_bool("tokenizer.ggml.add_bos_token", true);
        writer_.put_bool("tokenizer.ggml.add_eos_token", false);
    }

    void add_tensors() {
        const uint64_t n_embd = spec_.n_embd;
        const double logits = kLogitSpread / std::sqrt(static_cast<double>(n_embd));
        add_matrix("token_embd.weight", n_embd, spec_.n_vocab, spec_.tied ? logits : 1.0);
        for (uint32_t i = 0; i < spec_.n_layer; ++i) add_layer(format("blk.%u.", i));
        add_vector("output_norm.weight", n_embd, 1.0f, 0.1f);
        if (!spec_.tied) add_matrix("output.weight", n_embd, spec_.n_vocab, logits);
        if (spec_.rope_freqs) add_rope_freqs();
    }

    void add_layer(const std::string& prefix) {
        const uint64_t n_embd = spec_.n_embd;
        const uint64_t n_q = uint64_t{head_dim_} * spec_.n_head;
        const uint64_t n_kv = uint64_t{head_dim_} * spec_.n_head_kv;
        add_vector(prefix + "attn_norm.weight", n_embd, 1.0f, 0.1f);
        add_linear(prefix + "attn_q", n_embd, n_q, spec_.attn_bias);
        add_linear(prefix + "attn_k", n_embd, n_kv, spec_.attn_bias);
        add_linear(prefix + "attn_v", n_embd, n_kv, spec_.attn_bias);
        add_linear(prefix + "attn_output", n_q, n_embd, spec_.attn_bias);
        add_vector(prefix + "ffn_norm.weight", n_embd, 1.0f, 0.1f);
        add_linear(prefix + "ffn_gate", n_embd, spec_.n_ff, spec_.ffn_bias);
        add_linear(prefix + "ffn_up", n_embd, spec_.n_ff, spec_.ffn_bias);
        add_linear(prefix + "ffn_down", spec_.n_ff, n_embd, spec_.ffn_bias);
    }

    void add_linear(const std::string& name, uint64_t n_in, uint64_t n_out, bool bias) {
        add_matrix(name + ".weight", n_in, n_out, 1.0 / std::sqrt(static_cast<double>(n_in)));
        if (bias) add_vector(name + ".bias", n_out, 0.0f, 0.1f);
    }

    void add_matrix(const std::string& name, uint64_t n_row, uint64_t n_rows, double deviation) {
        const TensorType type = mix_type(
            mix_, {name, n_row, spec_.n_layer, spec_.n_head / spec_.n_head_kv, spec_.tied});
        const uint64_t dims[] = {n_row, n_rows};
        writer_.add_tensor(name, type, dims,
                           MatrixFill(threads_, type, n_row, n_rows, static_cast<float>(deviation),
                                      stream_key(spec_.seed, name)));
    }

    void add_vector(const std::string& name, uint64_t n, float mean, float deviation) {
        const uint64_t key = stream_key(spec_.seed, name);
        std::vector<float> x(static_cast<size_t>(n));
        for (size_t i = 0; i < x.size(); ++i) x[i] = mean + random_normal(key, i) * deviation;
        add_floats(name, std::move(x));
    }

    // The shape of llama-3's: fast pairs as they are, slow ones eight times slower.
    void add_rope_freqs() {
        std::vector<float> x(rope_dim_ / 2);
        const float n = static_cast<float>(x.size());
        for (size_t i = 0; i < x.size(); ++i) {
            const float part = static_cast<float>(i) / n;
            x[i] = 1.0f + 7.0f * std::clamp(part * 3.0f - 1.0f, 0.0f, 1.0f);
        }
        add_floats("rope_freqs.weight", std::move(x));
    }

    void add_floats(const std::string& name, std::vector<float> x) {
        const uint64_t dims[] = {x.size()};
        writer_.add_tensor(name, TensorType::f32, dims,
                           [values = std::move(x)](const GgufWriter::Sink& sink) -> Status {
                               std::vector<uint8_t> bytes(values.size() * sizeof(float));
                               quantize_row(TensorType::f32, values.data(), bytes.data(),
                                            values.size());
                               return sink(bytes);
                           });
    }

    const RandomModelSpec& spec_;
    const QuantMix& mix_;
    uint32_t head_dim_;
    uint32_t rope_dim_;
    ThreadPool threads_;
    GgufWriter writer_;
};

Status invalid(const std::string& text) {
    return Error{ErrorKind::invalid, "no such model can be made: " + text};
}

Status check(const RandomModelSpec& spec) {
    const struct {
        const char* name;
        uint32_t value;
        uint32_t max;
    } sizes[] = {{"n_embd", spec.n_embd, 1 << 18},
                 {"n_layer", spec.n_layer, 1 << 12},
                 {"n_head", spec.n_head, 1 << 12},
                 {"n_head_kv", spec.n_head_kv, 1 << 12},
                 {"n_ff", spec.n_ff, 1 << 20},
                 {"n_ctx", spec.n_ctx, 1 << 30},
                 {"n_vocab", spec.n_vocab, kMaxRandomVocab}};
    for (const auto& size : sizes)
        if (size.value == 0 || size.value > size.max)
            return invalid(
                format("%s is %u; 1 to %u are possible", size.name, size.value, size.max));
    if (spec.n_vocab < kMinRandomVocab)
        return invalid(format("n_vocab is %u; bytes, ASCII characters and a few words need %u",
                              spec.n_vocab, kMinRandomVocab));
    if (spec.n_head % spec.n_head_kv != 0)
        return invalid(
            format("n_head %u is no multiple of n_head_kv %u", spec.n_head, spec.n_head_kv));
    if (spec.head_dim == 0 && spec.n_embd % spec.n_head != 0)
        return invalid(format("n_embd %u is no multiple of n_head %u, and head_dim is not given",
                              spec.n_embd, spec.n_head));
    const uint32_t head_dim = spec.head_dim ? spec.head_dim : spec.n_embd / spec.n_head;
    const uint32_t rope_dim = spec.rope_dim ? spec.rope_dim : head_dim;
    if (head_dim > 1 << 12) return invalid(format("head_dim is %u; at most 4096", head_dim));
    if (rope_dim % 2 != 0 || rope_dim > head_dim)
        return invalid(format("the rope dimension is %u; it must be even and at most the head's %u",
                              rope_dim, head_dim));
    return {};
}

}  // namespace

std::optional<RandomModelSpec> random_model_preset(std::string_view name) {
    RandomModelSpec spec;
    if (name == "tiny") return spec;
    if (name == "small") {
        spec.name = "random-small";
        spec.n_embd = 512;
        spec.n_layer = 4;
        spec.n_head_kv = 2;
        spec.n_ff = 1536;
        spec.n_vocab = 4096;
        spec.n_ctx = 2048;
        return spec;
    }
    if (name == "tinyllama-1.1b") {
        spec.name = "random-tinyllama-1.1b";
        spec.n_embd = 2048;
        spec.n_layer = 22;
        spec.n_head = 32;
        spec.n_head_kv = 4;
        spec.n_ff = 5632;
        spec.n_vocab = 32000;
        spec.n_ctx = 2048;
        return spec;
    }
    return std::nullopt;
}

Status write_random_model(const RandomModelSpec& spec, const std::string& path) {
    TRY(check(spec));
    TRY(const QuantMix mix, find_quant_mix(spec.type));
    return ModelMaker(spec, mix).make().write(path);
}

Result<std::vector<uint8_t>> random_model_bytes(const RandomModelSpec& spec) {
    TRY(check(spec));
    TRY(const QuantMix mix, find_quant_mix(spec.type));
    return ModelMaker(spec, mix).make().to_bytes();
}

}  // namespace picolm
