// The typed getters of GgufFile: what a stored value may be read as.
#include "base/format.h"
#include "gguf/gguf.h"

namespace picolm {
namespace {

std::string type_text(const MetaValue& value) {
    if (value.type != MetaType::array) return meta_type_name(value.type);
    return std::string("an array of ") + meta_type_name(value.element);
}

bool is_array_of(const MetaValue& value, MetaType element) {
    return value.type == MetaType::array && value.element == element;
}

// The value of any integer type or bool, sign extended.
std::optional<uint64_t> integer_bits(const MetaValue& value) {
    ByteReader reader(value.data);
    switch (value.type) {
        case MetaType::boolean:
        case MetaType::u8:
            return reader.u8();
        case MetaType::u16:
            return reader.u16();
        case MetaType::u32:
            return reader.u32();
        case MetaType::u64:
        case MetaType::i64:
            return reader.u64();
        case MetaType::i8:
            return static_cast<uint64_t>(int64_t{static_cast<int8_t>(reader.u8())});
        case MetaType::i16:
            return static_cast<uint64_t>(int64_t{static_cast<int16_t>(reader.u16())});
        case MetaType::i32:
            return static_cast<uint64_t>(int64_t{static_cast<int32_t>(reader.u32())});
        default:
            return std::nullopt;
    }
}

bool is_signed(MetaType type) {
    return type == MetaType::i8 || type == MetaType::i16 || type == MetaType::i32 ||
           type == MetaType::i64;
}

}  // namespace

Error GgufFile::wrong_type(std::string_view key, const MetaValue& value,
                           const char* expected) const {
    return {ErrorKind::corrupt,
            format("%s: the metadata key \"%s\" is %s, expected %s", name_.c_str(),
                   printable(key).c_str(), type_text(value).c_str(), expected)};
}

Result<std::optional<uint64_t>> GgufFile::get_uint(std::string_view key) const {
    const MetaValue* value = find(key);
    if (!value) return std::optional<uint64_t>();
    const std::optional<uint64_t> bits = integer_bits(*value);
    if (!bits) return wrong_type(key, *value, "an integer");
    if (is_signed(value->type) && static_cast<int64_t>(*bits) < 0)
        return Error{ErrorKind::corrupt,
                     format("%s: the metadata key \"%s\" is %lld, expected a value that is not "
                            "negative",
                            name_.c_str(), printable(key).c_str(), static_cast<long long>(*bits))};
    return bits;
}

Result<std::optional<double>> GgufFile::get_float(std::string_view key) const {
    const MetaValue* value = find(key);
    if (!value) return std::optional<double>();
    ByteReader reader(value->data);
    if (value->type == MetaType::f32) return std::optional<double>(reader.f32());
    if (value->type == MetaType::f64) return std::optional<double>(reader.f64());
    return wrong_type(key, *value, "f32 or f64");
}

Result<std::optional<bool>> GgufFile::get_bool(std::string_view key) const {
    const MetaValue* value = find(key);
    if (!value) return std::optional<bool>();
    if (value->type != MetaType::boolean) return wrong_type(key, *value, "bool");
    return std::optional<bool>(value->data[0] != 0);
}

Result<std::optional<std::string_view>> GgufFile::get_string(std::string_view key) const {
    const MetaValue* value = find(key);
    if (!value) return std::optional<std::string_view>();
    if (value->type != MetaType::string) return wrong_type(key, *value, "a string");
    ByteReader reader(value->data);
    return std::optional<std::string_view>(reader.text(value->data.size()));
}

Result<std::optional<std::vector<std::string_view>>> GgufFile::get_strings(
    std::string_view key) const {
    using Strings = std::vector<std::string_view>;
    const MetaValue* value = find(key);
    if (!value) return std::optional<Strings>();
    if (!is_array_of(*value, MetaType::string))
        return wrong_type(key, *value, "an array of string");
    Strings strings;
    strings.reserve(static_cast<size_t>(value->count));
    ByteReader reader(value->data);
    for (uint64_t i = 0; i < value->count; ++i) strings.push_back(reader.text(reader.u64()));
    return std::optional<Strings>(std::move(strings));
}

Result<std::optional<Bytes>> GgufFile::get_f32_array(std::string_view key) const {
    const MetaValue* value = find(key);
    if (!value) return std::optional<Bytes>();
    if (!is_array_of(*value, MetaType::f32)) return wrong_type(key, *value, "an array of f32");
    return std::optional<Bytes>(value->data);
}

Result<std::optional<Bytes>> GgufFile::get_i32_array(std::string_view key) const {
    const MetaValue* value = find(key);
    if (!value) return std::optional<Bytes>();
    if (!is_array_of(*value, MetaType::i32) && !is_array_of(*value, MetaType::u32))
        return wrong_type(key, *value, "an array of i32 or u32");
    return std::optional<Bytes>(value->data);
}

}  // namespace picolm
