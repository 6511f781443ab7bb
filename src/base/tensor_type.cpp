#include "base/tensor_type.h"

#include <cassert>
#include <iterator>

namespace picolm {
namespace {

constexpr TensorTypeInfo kTypes[] = {
    {TensorType::f32, "F32", 1, 4},           {TensorType::f16, "F16", 1, 2},
    {TensorType::bf16, "BF16", 1, 2},         {TensorType::q4_0, "Q4_0", 32, 18},
    {TensorType::q4_1, "Q4_1", 32, 20},       {TensorType::q5_0, "Q5_0", 32, 22},
    {TensorType::q5_1, "Q5_1", 32, 24},       {TensorType::q8_0, "Q8_0", 32, 34},
    {TensorType::q2_k, "Q2_K", 256, 84},      {TensorType::q3_k, "Q3_K", 256, 110},
    {TensorType::q4_k, "Q4_K", 256, 144},     {TensorType::q5_k, "Q5_K", 256, 176},
    {TensorType::q6_k, "Q6_K", 256, 210},     {TensorType::iq4_nl, "IQ4_NL", 32, 18},
    {TensorType::iq4_xs, "IQ4_XS", 256, 136},
};

// Index = ggml type id.
constexpr const char* kGgmlNames[] = {
    "F32",   "F16",        "Q4_0",       "Q4_1",       "Q4_2",     "Q4_3",     "Q5_0",
    "Q5_1",  "Q8_0",       "Q8_1",       "Q2_K",       "Q3_K",     "Q4_K",     "Q5_K",
    "Q6_K",  "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
    "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
    "F64",   "IQ1_M",      "BF16",       "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
    "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4",    "NVFP4",    "Q1_0",
    "Q2_0",
};

char lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i)
        if (lower(a[i]) != lower(b[i])) return false;
    return true;
}

}  // namespace

std::span<const TensorTypeInfo> tensor_types() {
    return kTypes;
}

const TensorTypeInfo* find_tensor_type(uint32_t id) {
    for (const TensorTypeInfo& t : kTypes)
        if (static_cast<uint32_t>(t.type) == id) return &t;
    return nullptr;
}

const TensorTypeInfo* find_tensor_type(std::string_view name) {
    for (const TensorTypeInfo& t : kTypes)
        if (equal_ignoring_case(t.name, name)) return &t;
    return nullptr;
}

const char* ggml_type_name(uint32_t id) {
    return id < std::size(kGgmlNames) ? kGgmlNames[id] : nullptr;
}

const TensorTypeInfo& info(TensorType type) {
    const TensorTypeInfo* found = find_tensor_type(static_cast<uint32_t>(type));
    assert(found);
    return *found;
}

}  // namespace picolm
