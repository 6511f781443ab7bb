// ModelSpec: what a model is, as numbers named like their GGUF keys plus enums for every point of
// variation. A new llama-like architecture is a new row in spec.cpp, not a new forward pass.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "gguf/gguf.h"

namespace picolm {

// How rotary embedding pairs the elements of a head: norm turns (2i, 2i + 1).
enum class RopeKind { norm };

inline constexpr uint32_t kMaxHeadSize = 1 << 12;  // of a key or value

struct ModelSpec {
    std::string arch;  // general.architecture
    std::string name;  // general.name, may be empty

    uint32_t n_vocab = 0;
    uint32_t n_ctx_train = 0;  // context_length
    uint32_t n_embd = 0;
    uint32_t n_layer = 0;
    uint32_t n_ff = 0;
    uint32_t n_head = 0;
    uint32_t n_head_kv = 0;
    uint32_t n_embd_head_k = 0;  // attention.key_length
    uint32_t n_embd_head_v = 0;  // attention.value_length
    float norm_rms_eps = 0;

    RopeKind rope_kind = RopeKind::norm;
    uint32_t n_rot = 0;  // rope.dimension_count, even
    double rope_freq_base = 10000.0;
    double rope_freq_scale = 1.0;  // 1 / scaling factor: multiplies the angle

    uint32_t n_group() const { return n_head / n_head_kv; }  // query heads per KV head
};

// The most positions any context may have: rope angles are tested up to here.
inline constexpr uint32_t kMaxContext = 1u << 20;

// Reads and checks the metadata. unsupported: an architecture or rope scaling that this program
// does not know (named, with the list of those it does); corrupt: numbers that contradict each
// other.
Result<ModelSpec> read_spec(const GgufFile& file);

}  // namespace picolm
