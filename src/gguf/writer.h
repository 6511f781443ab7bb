// Writes a GGUF version 3 file: metadata in the order given, tensors one after another, each
// streamed, so that a model larger than memory can be made. What is written is what was asked for:
// only the shapes of tensors are checked, not the sense of the metadata.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/tensor_type.h"
#include "gguf/gguf.h"

namespace picolm {

class GgufWriter {
  public:
    // Another alignment than 32 is also written as the first key, general.alignment.
    // REQUIRES: a power of two, 8 or more.
    explicit GgufWriter(uint32_t alignment = 32);

    void put_u8(std::string_view key, uint8_t value);
    void put_i8(std::string_view key, int8_t value);
    void put_u16(std::string_view key, uint16_t value);
    void put_i16(std::string_view key, int16_t value);
    void put_u32(std::string_view key, uint32_t value);
    void put_i32(std::string_view key, int32_t value);
    void put_u64(std::string_view key, uint64_t value);
    void put_i64(std::string_view key, int64_t value);
    void put_f32(std::string_view key, float value);
    void put_f64(std::string_view key, double value);
    void put_bool(std::string_view key, bool value);
    void put_string(std::string_view key, std::string_view value);
    void put_strings(std::string_view key, std::span<const std::string> values);
    void put_f32s(std::string_view key, std::span<const float> values);
    void put_i32s(std::string_view key, std::span<const int32_t> values);
    // The bytes behind the type as they are: any array, and whatever a test of a reader needs.
    void put_raw(std::string_view key, MetaType type, Bytes value);

    // `fill` is called once, while the file is written, with a sink that takes the tensor's bytes
    // in order, in pieces of any size; in all row_bytes(type, dims[0]) x the other dims.
    using Sink = std::function<Status(Bytes)>;
    void add_tensor(std::string_view name, TensorType type, std::span<const uint64_t> dims,
                    std::function<Status(const Sink&)> fill);

    // Written under a temporary name in the same folder, then renamed. io: the system's reason;
    // invalid: a shape that its type cannot have, or a fill that gave too few or too many bytes.
    Status write(const std::string& path) const;
    // The whole file in memory, for tests. REQUIRES: fills succeed.
    std::vector<uint8_t> to_bytes() const;

  private:
    struct Tensor {
        std::string name;
        TensorType type;
        std::vector<uint64_t> dims;
        std::function<Status(const Sink&)> fill;
    };
    Status emit(const Sink& sink) const;
    Status emit_tensor(const Tensor& tensor, const Sink& sink) const;
    std::vector<uint8_t> header() const;
    void put_key(std::string_view key, MetaType type);

    uint32_t alignment_;
    uint64_t n_kv_ = 0;
    std::vector<uint8_t> kv_;
    std::vector<Tensor> tensors_;
};

}  // namespace picolm
