// Deterministic random-weight models for tests and benchmarks, of any shape and tensor mix, so that
// neither needs a download. The same spec gives the same bytes on every machine and at every
// thread count. The weights mean nothing, but logits are finite and spread like a trained model's
// (standard deviation near 3), and English text tokenises to pieces of sensible length.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace picolm {

struct RandomModelSpec {
    std::string name = "random";
    // Prefix of the hyperparameter keys. The tensors are always those of a llama.
    std::string arch = "llama";
    // A mix or a tensor type by name, as find_quant_mix (model/quant_mix.h) takes it.
    std::string type = "Q4_K_M";
    uint32_t n_embd = 256;
    uint32_t n_layer = 2;
    uint32_t n_head = 8;
    uint32_t n_head_kv = 4;
    uint32_t n_ff = 768;
    uint32_t n_vocab = 512;  // at least 512
    uint32_t n_ctx = 256;
    uint32_t head_dim = 0;  // key_length and value_length; 0: n_embd / n_head, and no such keys
    uint32_t rope_dim = 0;  // 0: head_dim
    float rope_base = 10000.0f;
    float rope_scale = 1.0f;  // not 1: linear scaling with this factor
    float rms_eps = 1e-5f;
    bool rope_freqs = false;  // rope_freqs.weight: a frequency divisor per pair, 1 rising to 8
    bool attn_bias = false;   // attn_{q,k,v,output}.bias
    bool ffn_bias = false;    // ffn_{gate,up,down}.bias
    bool tied = false;        // no output.weight: token_embd.weight serves
    uint64_t seed = 42;
};

// "tiny" (the defaults above), "small" (about 16 M weights), "tinyllama-1.1b" (that model's exact
// shape). nullopt: no such preset.
std::optional<RandomModelSpec> random_model_preset(std::string_view name);
inline constexpr std::string_view kRandomModelPresets = "tiny, small, tinyllama-1.1b";

// invalid: a spec that makes no model (says why); io: the system's reason.
Status write_random_model(const RandomModelSpec& spec, const std::string& path);
// The same file in memory.
Result<std::vector<uint8_t>> random_model_bytes(const RandomModelSpec& spec);

}  // namespace picolm
