#include "text/vocab.h"

#include <cstring>

#include "base/format.h"

namespace picolm {

Result<TokenTexts> TokenTexts::parse(Bytes array, uint64_t count) {
    if (count > kMaxTokens || array.size() > UINT32_MAX) {
        return Error{
            ErrorKind::unsupported,
            format("the vocabulary has %llu tokens in %zu bytes; at most %u tokens in 4 GiB"
                   " are supported",
                   static_cast<unsigned long long>(count), array.size(), kMaxTokens)};
    }
    TokenTexts texts;
    texts.array_ = array;
    ByteReader reader(array);
    if (count <= array.size() / sizeof(uint64_t)) {
        texts.offsets_.reserve(static_cast<size_t>(count));
    }
    for (uint64_t i = 0; i < count && reader.ok(); ++i) {
        texts.offsets_.push_back(static_cast<uint32_t>(reader.position()));
        reader.take(reader.u64());
    }
    if (!reader.ok()) {
        return Error{ErrorKind::corrupt, "the list of tokens ends inside a token"};
    }
    return texts;
}

std::string_view TokenTexts::operator[](uint32_t id) const {
    // parse() has walked over these bytes.
    const uint8_t* element = array_.data() + offsets_[id];
    uint64_t length;
    std::memcpy(&length, element, sizeof length);
    return {reinterpret_cast<const char*>(element) + sizeof length, static_cast<size_t>(length)};
}

}  // namespace picolm
