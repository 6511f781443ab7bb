// Weights bound once to named fields, with shape and type checked; afterwards nobody looks up a
// tensor by name. Pointers go into the mapped file, which must outlive the Weights.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/tensor_type.h"
#include "gguf/gguf.h"
#include "model/spec.h"

namespace picolm {

// n_out rows of n_in elements: y[r] = sum over i of w[r][i] * x[i].
struct Matrix {
    const uint8_t* data = nullptr;
    TensorType type = TensorType::f32;
    uint32_t n_in = 0;
    uint32_t n_out = 0;
    size_t row_bytes = 0;
};

struct LayerWeights {
    const float* attn_norm;         // [n_embd]
    Matrix attn_q;                  // [n_head * n_embd_head_k, n_embd]
    Matrix attn_k;                  // [n_head_kv * n_embd_head_k, n_embd]
    Matrix attn_v;                  // [n_head_kv * n_embd_head_v, n_embd]
    Matrix attn_output;             // [n_embd, n_head * n_embd_head_v]
    const float* attn_q_bias;       // [n_head * n_embd_head_k] or nullptr, as all biases
    const float* attn_k_bias;       // [n_head_kv * n_embd_head_k]
    const float* attn_v_bias;       // [n_head_kv * n_embd_head_v]
    const float* attn_output_bias;  // [n_embd]
    const float* ffn_norm;          // [n_embd]
    Matrix ffn_gate;                // [n_ff, n_embd]
    Matrix ffn_up;                  // [n_ff, n_embd]
    Matrix ffn_down;                // [n_embd, n_ff]
    const float* ffn_gate_bias;     // [n_ff]
    const float* ffn_up_bias;       // [n_ff]
    const float* ffn_down_bias;     // [n_embd]
};

struct Weights {
    Matrix token_embd;  // [n_vocab, n_embd], read by row
    std::vector<LayerWeights> layers;
    const float* output_norm;  // [n_embd]
    Matrix output;             // [n_vocab, n_embd]; token_embd when the file ties them
    bool tied = false;
    const float* rope_freqs;  // [n_rot / 2] frequency divisors, or nullptr

    // Bytes of all matrices that one token with logits goes through; of the embedding table one
    // row, unless it is the output matrix too.
    uint64_t bytes_per_token() const;
};

// corrupt: a tensor is missing or has the wrong shape; unsupported: an unexpected tensor (named).
Result<Weights> bind_weights(const GgufFile& file, const ModelSpec& spec);

}  // namespace picolm
