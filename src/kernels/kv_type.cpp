#include "kernels/kv_type.h"

namespace picolm {
namespace {

struct NamedType {
    const char* name;
    KvType type;
};
constexpr NamedType kTypes[] = {
    {"f16", KvType::f16}, {"q8_0", KvType::q8_0}, {"q4_0", KvType::q4_0}};

const char* name_of(KvType type) {
    return kTypes[static_cast<size_t>(type)].name;
}

std::optional<KvType> parse_one(std::string_view text) {
    for (const NamedType& each : kTypes)
        if (text == each.name) return each.type;
    return std::nullopt;
}

}  // namespace

std::string kv_types_name(KvTypes types) {
    return std::string(name_of(types.k)) + ',' + name_of(types.v);
}

std::optional<KvTypes> parse_kv_types(std::string_view text) {
    const size_t comma = text.find(',');
    const std::optional<KvType> k = parse_one(text.substr(0, comma));
    const std::optional<KvType> v =
        comma == std::string_view::npos ? k : parse_one(text.substr(comma + 1));
    if (!k || !v) return std::nullopt;
    return KvTypes{*k, *v};
}

std::string known_kv_types() {
    std::string text;
    for (const NamedType& each : kTypes)
        text += (text.empty() ? "" : ", ") + std::string(each.name);
    return text;
}

}  // namespace picolm
