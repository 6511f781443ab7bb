#include "app/describe_value.h"

#include "base/format.h"

namespace picolm::app {
namespace {

constexpr uint64_t kShownElements = 6;
constexpr size_t kShownText = 80;
constexpr size_t kShownElementText = 24;

template <typename Signed, typename Unsigned>
std::string signed_text(Unsigned bits) {
    return std::to_string(static_cast<Signed>(bits));
}

std::string quoted(std::string_view text, size_t max_len) {
    return '"' + printable(text, max_len) + '"';
}

// The next value of a type that is neither string nor array.
std::string scalar(MetaType type, ByteReader& reader) {
    switch (type) {
        case MetaType::u8:
            return std::to_string(reader.u8());
        case MetaType::i8:
            return signed_text<int8_t>(reader.u8());
        case MetaType::u16:
            return std::to_string(reader.u16());
        case MetaType::i16:
            return signed_text<int16_t>(reader.u16());
        case MetaType::u32:
            return std::to_string(reader.u32());
        case MetaType::i32:
            return signed_text<int32_t>(reader.u32());
        case MetaType::u64:
            return std::to_string(reader.u64());
        case MetaType::i64:
            return signed_text<int64_t>(reader.u64());
        case MetaType::f32:
            return format("%.9g", static_cast<double>(reader.f32()));
        case MetaType::f64:
            return format("%.17g", reader.f64());
        case MetaType::boolean:
            return reader.u8() != 0 ? "true" : "false";
        case MetaType::string:
        case MetaType::array:
            break;
    }
    return "";
}

}  // namespace

std::string describe_type(const MetaValue& value) {
    if (value.type != MetaType::array) return meta_type_name(value.type);
    return format("%s[%llu]", meta_type_name(value.element),
                  static_cast<unsigned long long>(value.count));
}

std::string describe_value(const MetaValue& value) {
    ByteReader reader(value.data);
    if (value.type == MetaType::string) return quoted(reader.text(reader.remaining()), kShownText);
    if (value.type != MetaType::array) return scalar(value.type, reader);
    std::string text;
    for (uint64_t i = 0; i < value.count && i < kShownElements; ++i) {
        if (i > 0) text += ", ";
        if (value.element == MetaType::array) return "arrays";
        text += value.element == MetaType::string
                    ? quoted(reader.text(reader.u64()), kShownElementText)
                    : scalar(value.element, reader);
    }
    return value.count > kShownElements ? text + ", ..." : text;
}

}  // namespace picolm::app
