// Which type each matrix of a quantised model has: the mixes of llama.cpp's quantiser, by role and
// layer (facts of its tools/quantize; the golden models prove the rules used here).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/tensor_type.h"

namespace picolm {

struct QuantMix {
    std::string name;
    TensorType base;                    // of every matrix without a rule
    bool pure;                          // no rules: every matrix is of the base type
    std::optional<uint32_t> file_type;  // general.file_type, where there is a number for it
};

// Q2_K, Q3_K_S/M/L, Q4_K_S/M, Q5_K_S/M, Q6_K, IQ4_NL, IQ4_XS; or a tensor type that is no mix, or
// "pure:" and any tensor type: pure. Any case. invalid: anything else.
Result<QuantMix> find_quant_mix(std::string_view name);

struct MatrixRole {
    std::string_view name;  // as in GGUF: "blk.3.attn_v.weight"
    uint64_t n_row;         // elements per row
    uint32_t n_layer;
    uint32_t n_gqa;  // query heads per KV head
    bool tied;       // token_embd serves as output
};

// The type of a matrix, with the quantiser's fallback where its rows are no multiple of the block.
TensorType mix_type(const QuantMix& mix, const MatrixRole& role);

}  // namespace picolm
