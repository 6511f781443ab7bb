#include "model/quant_mix.h"

#include <algorithm>

#include "base/format.h"

namespace picolm {
namespace {

struct KnownMix {
    const char* name;
    TensorType base;
    bool pure;
    uint32_t file_type;
};

constexpr KnownMix kMixes[] = {
    {"F32", TensorType::f32, true, 0},         {"F16", TensorType::f16, true, 1},
    {"Q4_0", TensorType::q4_0, true, 2},       {"Q4_1", TensorType::q4_1, true, 3},
    {"Q8_0", TensorType::q8_0, true, 7},       {"Q5_0", TensorType::q5_0, true, 8},
    {"Q5_1", TensorType::q5_1, true, 9},       {"Q2_K", TensorType::q2_k, false, 10},
    {"Q3_K_S", TensorType::q3_k, false, 11},   {"Q3_K_M", TensorType::q3_k, false, 12},
    {"Q3_K_L", TensorType::q3_k, false, 13},   {"Q4_K_S", TensorType::q4_k, false, 14},
    {"Q4_K_M", TensorType::q4_k, false, 15},   {"Q5_K_S", TensorType::q5_k, false, 16},
    {"Q5_K_M", TensorType::q5_k, false, 17},   {"Q6_K", TensorType::q6_k, false, 18},
    {"IQ4_NL", TensorType::iq4_nl, false, 25}, {"IQ4_XS", TensorType::iq4_xs, false, 30},
    {"BF16", TensorType::bf16, true, 32},
};

std::string upper(std::string_view text) {
    std::string out(text);
    for (char& c : out)
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    return out;
}

// The number in "blk.N."; 0 elsewhere.
uint32_t layer_of(std::string_view name) {
    uint32_t layer = 0;
    if (!name.starts_with("blk.")) return 0;
    for (const char c : name.substr(4)) {
        if (c < '0' || c > '9') break;
        layer = layer * 10 + static_cast<uint32_t>(c - '0');
    }
    return layer;
}

// The first and the last eighth of the layers, and every third between.
bool gets_more_bits(uint32_t layer, uint32_t n_layer) {
    const uint32_t eighth = n_layer / 8;
    return layer < eighth || layer >= 7 * n_layer / 8 || (layer - eighth) % 3 == 2;
}

TensorType attn_v_type(const QuantMix& mix, const MatrixRole& role, uint32_t layer) {
    const std::string& name = mix.name;
    if (name == "Q2_K") return role.n_gqa >= 4 ? TensorType::q4_k : TensorType::q3_k;
    if (name == "Q3_K_M") return layer < 2 ? TensorType::q5_k : TensorType::q4_k;
    if (name == "Q3_K_L") return TensorType::q5_k;
    if ((name == "IQ4_NL" || name == "IQ4_XS") && role.n_gqa >= 4) return TensorType::q5_k;
    if ((name == "Q4_K_M" || name == "Q5_K_M") && gets_more_bits(layer, role.n_layer))
        return TensorType::q6_k;
    if (name == "Q4_K_S" && layer < 4) return TensorType::q5_k;
    return mix.base;
}

TensorType ffn_down_type(const QuantMix& mix, const MatrixRole& role, uint32_t layer) {
    const std::string& name = mix.name;
    if (name == "Q2_K") return TensorType::q3_k;
    if (name == "Q3_K_M") return layer < role.n_layer / 16 ? TensorType::q5_k : TensorType::q4_k;
    if (name == "Q3_K_L") return TensorType::q5_k;
    if ((name == "Q4_K_M" || name == "Q5_K_M") && gets_more_bits(layer, role.n_layer))
        return TensorType::q6_k;
    if ((name == "IQ4_NL" || name == "IQ4_XS" || name == "Q4_K_S") && layer < role.n_layer / 8)
        return TensorType::q5_k;
    return mix.base;
}

TensorType attn_output_type(const QuantMix& mix) {
    if (mix.name == "Q2_K") return TensorType::q3_k;
    if (mix.name == "Q3_K_M") return TensorType::q4_k;
    if (mix.name == "Q3_K_L") return TensorType::q5_k;
    return mix.base;
}

TensorType by_role(const QuantMix& mix, const MatrixRole& role) {
    if (mix.pure) return mix.base;
    const uint32_t layer = layer_of(role.name);
    if (role.name == "output.weight" || (role.tied && role.name == "token_embd.weight"))
        return TensorType::q6_k;
    if (role.name.ends_with(".attn_v.weight")) return attn_v_type(mix, role, layer);
    if (role.name.ends_with(".ffn_down.weight")) return ffn_down_type(mix, role, layer);
    if (role.name.ends_with(".attn_output.weight")) return attn_output_type(mix);
    return mix.base;
}

TensorType with_smaller_blocks(TensorType type) {
    switch (type) {
        case TensorType::q2_k:
        case TensorType::q3_k:
        case TensorType::iq4_xs:
            return TensorType::iq4_nl;
        case TensorType::q4_k:
            return TensorType::q5_0;
        case TensorType::q5_k:
            return TensorType::q5_1;
        case TensorType::q6_k:
            return TensorType::q8_0;
        default:
            return TensorType::f16;
    }
}

}  // namespace

Result<QuantMix> find_quant_mix(std::string_view name) {
    const std::string wanted = upper(name);
    for (const KnownMix& mix : kMixes)
        if (wanted == mix.name) return QuantMix{mix.name, mix.base, mix.pure, mix.file_type};
    std::string_view type_name = wanted;
    if (type_name.starts_with("PURE:")) type_name.remove_prefix(5);
    if (const TensorTypeInfo* type = find_tensor_type(type_name))
        return QuantMix{wanted, type->type, true, std::nullopt};
    return Error{ErrorKind::invalid,
                 format("the tensor type or mix \"%s\" is not known; examples: Q4_K_M, Q8_0, F16, "
                        "pure:Q4_K",
                        printable(name).c_str())};
}

TensorType mix_type(const QuantMix& mix, const MatrixRole& role) {
    TensorType type = by_role(mix, role);
    while (role.n_row % info(type).block_size != 0) type = with_smaller_blocks(type);
    return type;
}

}  // namespace picolm
