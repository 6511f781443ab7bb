// The element types of GGUF tensors: ids, names and block geometry. Ids and sizes are facts of the
// file format (ggml's ggml_type); the layouts themselves are in kernels/blocks.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace picolm {

enum class TensorType : uint32_t {
    f32 = 0,
    f16 = 1,
    q4_0 = 2,
    q4_1 = 3,
    q5_0 = 6,
    q5_1 = 7,
    q8_0 = 8,
    q2_k = 10,
    q3_k = 11,
    q4_k = 12,
    q5_k = 13,
    q6_k = 14,
    iq4_nl = 20,
    iq4_xs = 23,
    bf16 = 30,
};

struct TensorTypeInfo {
    TensorType type;
    const char* name;      // as people write it: "Q4_K"
    uint32_t block_size;   // elements per block
    uint32_t block_bytes;  // bytes per block
};

// Every type this program computes with.
std::span<const TensorTypeInfo> tensor_types();

// nullptr when the program does not know the id.
const TensorTypeInfo* find_tensor_type(uint32_t id);
// Case-insensitive: "q4_k", "Q4_K". nullptr when unknown.
const TensorTypeInfo* find_tensor_type(std::string_view name);
// The name of any id that ggml has given out, also of those this program cannot compute with;
// nullptr for the rest.
const char* ggml_type_name(uint32_t id);

// REQUIRES: type is one of tensor_types().
const TensorTypeInfo& info(TensorType type);

// Bytes of n elements. REQUIRES: n % block_size == 0.
inline size_t row_bytes(TensorType type, size_t n) {
    const TensorTypeInfo& t = info(type);
    return n / t.block_size * t.block_bytes;
}

}  // namespace picolm
