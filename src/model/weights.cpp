#include "model/weights.h"

#include <string>
#include <unordered_set>

#include "base/format.h"

namespace picolm {
namespace {

// Hands out tensors by name and remembers which ones were asked for.
class Binder {
  public:
    explicit Binder(const GgufFile& file) : file_(file) {}

    Result<Matrix> matrix(const std::string& name, uint32_t n_out, uint32_t n_in) {
        TRY(const TensorInfo* t, find(name, n_in, n_out));
        Matrix m;
        m.data = t->data.data();
        m.type = t->type;
        m.n_in = n_in;
        m.n_out = n_out;
        m.row_bytes = row_bytes(t->type, n_in);
        return m;
    }

    Result<const float*> vector(const std::string& name, uint32_t n) {
        TRY(const TensorInfo* t, find(name, n, 1));
        if (t->type != TensorType::f32)
            return wrong(ErrorKind::unsupported, name,
                         format("has type %s; norms and biases must be F32", info(t->type).name));
        if (reinterpret_cast<uintptr_t>(t->data.data()) % alignof(float) != 0)
            return wrong(ErrorKind::unsupported, name, "is not aligned to 4 bytes");
        return reinterpret_cast<const float*>(t->data.data());
    }

    Result<const float*> optional_vector(const std::string& name, uint32_t n) {
        if (!file_.tensor(name)) return static_cast<const float*>(nullptr);
        return vector(name, n);
    }

    bool has(const std::string& name) const { return file_.tensor(name) != nullptr; }

    Status nothing_left() const {
        for (const TensorInfo& t : file_.tensors())
            if (!used_.contains(t.name))
                return wrong(ErrorKind::unsupported, std::string(t.name),
                             "is not expected in this architecture; ignoring it would give wrong "
                             "answers");
        return {};
    }

  private:
    Error wrong(ErrorKind kind, const std::string& name, const std::string& what) const {
        return {kind, format("%s: tensor %s %s", file_.name().c_str(), printable(name).c_str(),
                             what.c_str())};
    }

    Result<const TensorInfo*> find(const std::string& name, uint32_t d0, uint32_t d1) {
        const TensorInfo* t = file_.tensor(name);
        if (!t) return wrong(ErrorKind::corrupt, name, "is missing");
        if (t->dims[0] != d0 || t->dims[1] != d1 || t->dims[2] != 1 || t->dims[3] != 1)
            return wrong(ErrorKind::corrupt, name,
                         format("has shape [%llu, %llu, %llu, %llu]; the metadata ask for [%u, %u]",
                                static_cast<unsigned long long>(t->dims[0]),
                                static_cast<unsigned long long>(t->dims[1]),
                                static_cast<unsigned long long>(t->dims[2]),
                                static_cast<unsigned long long>(t->dims[3]), d0, d1));
        used_.insert(t->name);
        return t;
    }

    const GgufFile& file_;
    std::unordered_set<std::string_view> used_;
};

Result<LayerWeights> bind_layer(Binder& bind, const ModelSpec& spec, uint32_t index) {
    const std::string blk = format("blk.%u.", index);
    const uint32_t n_q = spec.n_head * spec.n_embd_head_k;
    const uint32_t n_k = spec.n_head_kv * spec.n_embd_head_k;
    const uint32_t n_v = spec.n_head_kv * spec.n_embd_head_v;
    LayerWeights w{};
    TRY(w.attn_norm, bind.vector(blk + "attn_norm.weight", spec.n_embd));
    TRY(w.attn_q, bind.matrix(blk + "attn_q.weight", n_q, spec.n_embd));
    TRY(w.attn_k, bind.matrix(blk + "attn_k.weight", n_k, spec.n_embd));
    TRY(w.attn_v, bind.matrix(blk + "attn_v.weight", n_v, spec.n_embd));
    TRY(w.attn_output,
        bind.matrix(blk + "attn_output.weight", spec.n_embd, spec.n_head * spec.n_embd_head_v));
    TRY(w.attn_q_bias, bind.optional_vector(blk + "attn_q.bias", n_q));
    TRY(w.attn_k_bias, bind.optional_vector(blk + "attn_k.bias", n_k));
    TRY(w.attn_v_bias, bind.optional_vector(blk + "attn_v.bias", n_v));
    TRY(w.attn_output_bias, bind.optional_vector(blk + "attn_output.bias", spec.n_embd));
    TRY(w.ffn_norm, bind.vector(blk + "ffn_norm.weight", spec.n_embd));
    TRY(w.ffn_gate, bind.matrix(blk + "ffn_gate.weight", spec.n_ff, spec.n_embd));
    TRY(w.ffn_up, bind.matrix(blk + "ffn_up.weight", spec.n_ff, spec.n_embd));
    TRY(w.ffn_down, bind.matrix(blk + "ffn_down.weight", spec.n_embd, spec.n_ff));
    TRY(w.ffn_gate_bias, bind.optional_vector(blk + "ffn_gate.bias", spec.n_ff));
    TRY(w.ffn_up_bias, bind.optional_vector(blk + "ffn_up.bias", spec.n_ff));
    TRY(w.ffn_down_bias, bind.optional_vector(blk + "ffn_down.bias", spec.n_embd));
    return w;
}

uint64_t bytes_of(const Matrix& matrix) {
    return uint64_t{matrix.n_out} * matrix.row_bytes;
}

}  // namespace

uint64_t Weights::bytes_per_token() const {
    uint64_t n = token_embd.row_bytes + bytes_of(output);
    for (const LayerWeights& w : layers)
        for (const Matrix* matrix :
             {&w.attn_q, &w.attn_k, &w.attn_v, &w.attn_output, &w.ffn_gate, &w.ffn_up, &w.ffn_down})
            n += bytes_of(*matrix);
    return n;
}

Result<Weights> bind_weights(const GgufFile& file, const ModelSpec& spec) {
    Binder bind(file);
    Weights w{};
    TRY(w.token_embd, bind.matrix("token_embd.weight", spec.n_vocab, spec.n_embd));
    for (uint32_t i = 0; i < spec.n_layer; ++i) {
        TRY(const LayerWeights layer, bind_layer(bind, spec, i));
        w.layers.push_back(layer);
    }
    TRY(w.output_norm, bind.vector("output_norm.weight", spec.n_embd));
    w.tied = !bind.has("output.weight");
    w.output = w.token_embd;
    if (!w.tied) {
        TRY(w.output, bind.matrix("output.weight", spec.n_vocab, spec.n_embd));
    }
    if (bind.has("rope_freqs.weight")) {
        TRY(w.rope_freqs, bind.vector("rope_freqs.weight", spec.n_rot / 2));
        for (uint32_t i = 0; i < spec.n_rot / 2; ++i)
            if (!(w.rope_freqs[i] >= 0.01f) || !(w.rope_freqs[i] <= 1e9f))
                return Error{ErrorKind::corrupt,
                             format("%s: rope_freqs.weight holds %g", file.name().c_str(),
                                    static_cast<double>(w.rope_freqs[i]))};
    }
    TRY(bind.nothing_left());
    return w;
}

}  // namespace picolm
