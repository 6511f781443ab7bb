// GGUF bytes -> validated metadata and tensor views. Versions 2 and 3, little-endian
// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). Nothing here trusts a field: every
// count, length, dimension and offset is checked against the bytes that are there before it is
// used, and nothing is allocated by a number that has not been checked.
//
// Ownership: views (std::string_view, Bytes) point into the file's bytes and live as long as the
// GgufFile that gave them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/mapped_file.h"
#include "base/result.h"
#include "base/tensor_type.h"

namespace picolm {

enum class MetaType : uint32_t {
    u8 = 0,
    i8,
    u16,
    i16,
    u32,
    i32,
    f32,
    boolean,
    string,
    array,
    u64,
    i64,
    f64,
};
const char* meta_type_name(MetaType type);

// One metadata value, in place. A scalar or a string is read through the typed getters of GgufFile.
struct MetaValue {
    MetaType type;
    MetaType element;  // of an array; else equal to type
    uint64_t count;    // of an array; else 1
    Bytes data;        // a scalar's bytes, a string's characters, or an array's elements as stored
};

struct TensorInfo {
    std::string_view name;
    TensorType type;
    uint32_t n_dims;               // 1..4
    std::array<uint64_t, 4> dims;  // dims[0] is the contiguous one ("ne"); unused ones are 1
    uint64_t offset;               // from the start of the file
    Bytes data;                    // the tensor's bytes, whole
};

class GgufFile {
  public:
    // Maps and validates the file. The error text names the file, says what is wrong and what to
    // do; it recognises other formats (HTML, git-lfs pointer, zip, older GGML magics, safetensors),
    // GGUF version 1, big-endian files, and split files (split.count > 1).
    static Result<GgufFile> open(const std::string& path);
    // The same over bytes that the caller keeps alive; `name` stands in messages.
    static Result<GgufFile> parse(Bytes bytes, std::string name);

    const std::string& name() const { return name_; }
    uint32_t version() const { return version_; }
    uint32_t alignment() const { return alignment_; }
    uint64_t file_size() const { return bytes_.size(); }
    // Everything before the tensor data: header, metadata, tensor table.
    Bytes header_bytes() const { return bytes_.first(static_cast<size_t>(header_size_)); }

    // Metadata in file order.
    struct Entry {
        std::string_view key;
        MetaValue value;
    };
    std::span<const Entry> metadata() const { return metadata_; }
    const MetaValue* find(std::string_view key) const;  // nullptr: absent

    // Typed getters: nullopt when absent; `corrupt` naming key, found and expected type otherwise.
    // get_uint takes any integer type or bool whose value is not negative; get_float f32 or f64.
    Result<std::optional<uint64_t>> get_uint(std::string_view key) const;
    Result<std::optional<double>> get_float(std::string_view key) const;
    Result<std::optional<bool>> get_bool(std::string_view key) const;
    Result<std::optional<std::string_view>> get_string(std::string_view key) const;
    // An array of strings as views, in order.
    Result<std::optional<std::vector<std::string_view>>> get_strings(std::string_view key) const;
    // An array whose element type is exactly f32 / i32 or u32, as stored (unaligned little-endian
    // bytes).
    Result<std::optional<Bytes>> get_f32_array(std::string_view key) const;
    Result<std::optional<Bytes>> get_i32_array(std::string_view key) const;

    std::span<const TensorInfo> tensors() const { return tensors_; }  // in file order
    const TensorInfo* tensor(std::string_view name) const;            // nullptr: absent

  private:
    Error wrong_type(std::string_view key, const MetaValue& value, const char* expected) const;

    MappedFile mapping_;
    Bytes bytes_;
    std::string name_;
    uint32_t version_ = 0;
    uint32_t alignment_ = 32;
    uint64_t header_size_ = 0;
    std::vector<Entry> metadata_;
    std::vector<TensorInfo> tensors_;
    std::unordered_map<std::string_view, size_t> metadata_index_;
    std::unordered_map<std::string_view, size_t> tensor_index_;

    friend class GgufParser;
};

}  // namespace picolm
