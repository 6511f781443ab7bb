#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/result.h"
#include "base/utf8.h"

namespace picolm {
namespace {

Result<int> half(int n) {
    if (n % 2) return Error{ErrorKind::invalid, "odd"};
    return n / 2;
}
Result<int> quarter(int n) {
    TRY(const int h, half(n));
    TRY(half(h));
    return h / 2;
}

TEST(ResultTest, TryPassesValuesAndErrors) {
    EXPECT_EQ(*quarter(8), 2);
    EXPECT_FALSE(quarter(3));
    EXPECT_EQ(quarter(6).error().text, "odd");
}

TEST(ByteReaderTest, FailureIsSticky) {
    const uint8_t data[] = {1, 2, 0, 0, 0, 9};
    ByteReader r{Bytes(data)};
    EXPECT_EQ(r.u8(), 1);
    EXPECT_EQ(r.u32(), 2u);
    EXPECT_EQ(r.u32(), 0u);
    EXPECT_FALSE(r.ok());
    EXPECT_EQ(r.u8(), 0);  // one byte is left, but the reader has failed
    EXPECT_EQ(r.remaining(), 0u);
}

TEST(ByteReaderTest, HugeCountsDoNotWrap) {
    const uint8_t data[16] = {};
    ByteReader a{Bytes(data)};
    a.take(UINT64_MAX);
    EXPECT_FALSE(a.ok());
    ByteReader b{Bytes(data)};
    b.take_array(uint64_t{1} << 61, 8);
    EXPECT_FALSE(b.ok());
}

TEST(HashTest, StreamEqualsOneCall) {
    std::string text(1000, 'x');
    const Bytes bytes(reinterpret_cast<const uint8_t*>(text.data()), text.size());
    Hasher h;
    h.update(bytes.first(123));
    h.update(bytes.subspan(123));
    EXPECT_EQ(h.digest128(), hash128(bytes));
    EXPECT_EQ(h.digest64(), hash64(bytes));
    EXPECT_EQ(hash128(bytes).hex().size(), 32u);
}

TEST(Utf8Test, LengthsAndTails) {
    EXPECT_EQ(utf8_char_length("a"), 1u);
    EXPECT_EQ(utf8_char_length("\xF0\x9F\xA6\x99"), 4u);
    EXPECT_EQ(utf8_char_length("\xC0\x80"), 0u);          // overlong
    EXPECT_EQ(utf8_char_length("\xED\xA0\x80"), 0u);      // surrogate
    EXPECT_EQ(utf8_char_length("\xF4\x90\x80\x80"), 0u);  // above U+10FFFF
    EXPECT_EQ(utf8_incomplete_length("\xF0\x9F"), 2u);
    EXPECT_EQ(utf8_incomplete_length("\xF0\x9Fx"), 0u);
    EXPECT_EQ(utf8_incomplete_length("\x80"), 0u);
}

TEST(FormatTest, BytesAndPrintable) {
    EXPECT_EQ(format_bytes(999), "999 B");
    EXPECT_EQ(format_bytes(638'100'000), "638.1 MB");
    EXPECT_EQ(printable("a\x1b[0m\xff"), "a?[0m?");
    EXPECT_EQ(printable("abcdef", 3), "abc...");
}

}  // namespace
}  // namespace picolm
