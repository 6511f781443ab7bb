// Writes a GGUF version 3 file: metadata in the order given, tensors one after another, each
// streamed, so that a model larger than memory can be made.
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

namespace picolm {

class GgufWriter {
  public:
    explicit GgufWriter(uint32_t alignment = 32) : alignment_(alignment) {}

    void put_u32(std::string_view key, uint32_t value);
    void put_u64(std::string_view key, uint64_t value);
    void put_i32(std::string_view key, int32_t value);
    void put_f32(std::string_view key, float value);
    void put_bool(std::string_view key, bool value);
    void put_string(std::string_view key, std::string_view value);
    void put_strings(std::string_view key, std::span<const std::string> values);
    void put_f32s(std::string_view key, std::span<const float> values);
    void put_i32s(std::string_view key, std::span<const int32_t> values);

    // `fill` is called once, while the file is written, with a sink that takes the tensor's bytes
    // in order, in pieces of any size; in all row_bytes(type, dims[0]) x the other dims.
    using Sink = std::function<Status(Bytes)>;
    void add_tensor(std::string_view name, TensorType type, std::span<const uint64_t> dims,
                    std::function<Status(const Sink&)> fill);

    // Written under a temporary name in the same folder, then renamed. io: the system's reason.
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
    void put_key(std::string_view key, uint32_t type);

    uint32_t alignment_;
    uint64_t n_kv_ = 0;
    std::vector<uint8_t> kv_;
    std::vector<Tensor> tensors_;
};

}  // namespace picolm
