// One record: its bytes, its checks, its keys, and what the first bytes of a file say.
#include "cache/record.h"

#include <gtest/gtest.h>

#include <cstring>

namespace picolm::cache {
namespace {

RecordHeader sample(uint32_t first, uint32_t n) {
    RecordHeader h;
    h.kind = RecordKind::pages;
    h.identity = identity_key("model=x");
    std::vector<uint32_t> units(first + n);
    for (uint32_t i = 0; i < units.size(); ++i) units[i] = 7 * i + 1;
    const auto keys = chain_keys(h.identity, units);
    h.parent = keys[first];
    h.own = keys[first + n];
    h.first = first;
    h.n = n;
    h.payload_size = 640 * n;
    h.data_checksum = 0x123456789ABCDEF0;
    std::copy(units.begin() + first, units.end(), h.units.begin());
    return h;
}

// Changes 4 bytes and repairs the checksum.
std::vector<uint8_t> patched(std::vector<uint8_t> head, size_t offset, uint32_t value) {
    std::memcpy(head.data() + offset, &value, 4);
    std::memset(head.data() + 88, 0, 8);
    const uint64_t sum = hash64(head);
    std::memcpy(head.data() + 88, &sum, 8);
    return head;
}

TEST(Record, RoundTrip) {
    for (const auto& [first, n] :
         {std::pair{0u, 64u}, {0u, 25u}, {25u, 1u}, {64u, 8u}, {127u, 1u}}) {
        const RecordHeader h = sample(first, n);
        const std::vector<uint8_t> bytes = encode_header(h);
        EXPECT_EQ(bytes.size() % 64, 0u);
        EXPECT_LE(bytes.size(), size_t{kMaxHead});
        const auto read = parse_header(bytes);
        ASSERT_TRUE(read);
        EXPECT_EQ(read->own, h.own);
        EXPECT_EQ(read->parent, h.parent);
        EXPECT_EQ(read->identity, h.identity);
        EXPECT_EQ(read->first, first);
        EXPECT_EQ(read->n, n);
        EXPECT_EQ(read->units, h.units);
        EXPECT_EQ(read->payload_size, h.payload_size);
        EXPECT_EQ(read->data_checksum, h.data_checksum);
    }
}

TEST(Record, BytesAreThoseOfTheFormatPage) {
    const std::vector<uint8_t> b = encode_header(sample(0, 2));
    ASSERT_EQ(b.size(), 128u);
    const std::vector<uint8_t> start = {'P', 'C', 'V', 'K', 1, 0, 0, 0x80, 2, 0, 0, 0, 2, 0, 0, 0};
    EXPECT_TRUE(std::equal(start.begin(), start.end(), b.begin()));
    EXPECT_EQ(b[72] | b[73] << 8, 1280);  // payload size
    EXPECT_EQ(b[96], 1);                  // units
    EXPECT_EQ(b[100], 8);
}

TEST(Record, EveryFlippedHeaderBitIsSeen) {
    const std::vector<uint8_t> good = encode_header(sample(64, 25));
    ASSERT_TRUE(parse_header(good));
    for (size_t bit = 0; bit < good.size() * 8; ++bit) {
        std::vector<uint8_t> bad = good;
        bad[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
        EXPECT_FALSE(parse_header(bad)) << "bit " << bit;
    }
}

TEST(Record, EveryCutHeaderIsSeen) {
    const std::vector<uint8_t> good = encode_header(sample(0, 25));
    for (size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(parse_header(Bytes(good).first(n)));
}

TEST(Record, ContradictionsWithAGoodChecksumAreSeen) {
    const std::vector<uint8_t> good = encode_header(sample(0, 25));
    ASSERT_TRUE(parse_header(patched(good, 0, kMagic)));  // the patch itself is harmless
    EXPECT_FALSE(parse_header(patched(good, 4, 0x80000002)));
    for (const uint32_t kind : {0u, 1u, 3u, 4u, 0xFFFFFFFFu}) {
        EXPECT_FALSE(parse_header(patched(good, 8, kind))) << kind;
    }
    for (const uint32_t n : {0u, 24u, 26u, 65u, 0x80000000u, 0xFFFFFFFFu}) {
        EXPECT_FALSE(parse_header(patched(good, 12, n))) << n;
    }
    EXPECT_FALSE(parse_header(patched(good, 16, 1)));   // identity is not the parent at position 0
    EXPECT_FALSE(parse_header(patched(good, 32, 1)));   // parent
    EXPECT_FALSE(parse_header(patched(good, 48, 1)));   // own
    EXPECT_FALSE(parse_header(patched(good, 64, 40)));  // over the end of the page
    EXPECT_FALSE(parse_header(patched(good, 64, 0xFFFFFFF0)));
    EXPECT_FALSE(parse_header(patched(good, 68, 1)));
    EXPECT_FALSE(parse_header(patched(good, 76, 0x80000000)));         // payload of 2^63 bytes
    EXPECT_FALSE(parse_header(patched(patched(good, 72, 0), 76, 0)));  // no payload
    EXPECT_FALSE(parse_header(patched(good, 96, 999)));                // a unit
}

TEST(Record, KeysChain) {
    const Key128 root = identity_key("a");
    const std::vector<uint32_t> units = {5, 6, 7};
    const auto keys = chain_keys(root, units);
    ASSERT_EQ(keys.size(), 4u);
    EXPECT_EQ(keys[0], root);
    EXPECT_EQ(keys[3], next_key(next_key(next_key(root, 5), 6), 7));
    EXPECT_NE(identity_key("a"), identity_key("b"));
    EXPECT_NE(next_key(root, 5), next_key(root, 6));
}

TEST(Record, FirstBytesOfAFile) {
    EXPECT_EQ(classify_head(encode_header(sample(0, 1))), HeadKind::ours);
    const uint8_t original[] = {'P', 'C', 'V', 'K', 25, 0, 0, 0, 22, 0, 0, 0, 0, 1, 0, 0};
    EXPECT_EQ(classify_head(original), HeadKind::original);
    const uint8_t newer[] = {'P', 'C', 'V', 'K', 2, 0, 0, 0x80};
    EXPECT_EQ(classify_head(newer), HeadKind::newer);
    const uint8_t gguf[] = {'G', 'G', 'U', 'F', 3, 0, 0, 0};
    EXPECT_EQ(classify_head(gguf), HeadKind::foreign);
    EXPECT_EQ(classify_head(Bytes(gguf).first(3)), HeadKind::foreign);
}

TEST(Record, DifferenceOfIdentitiesNamesTheKeys) {
    EXPECT_EQ(describe_difference("a=1;b=2;c=3", "a=1;b=5;c=3"), "b: 2 there, 5 here");
    EXPECT_EQ(describe_difference("a=1;old=9", "a=1;new=x"),
              "new: nothing there, x here; old: 9 there, nothing here");
    EXPECT_EQ(describe_difference("a=1;b=1;c=1;d=1", "a=2;b=2;c=2;d=2"),
              "a: 1 there, 2 here; b: 1 there, 2 here; c: 1 there, 2 here; ...");
    EXPECT_EQ(describe_difference("a=1", "a=1"), "");
    EXPECT_EQ(describe_difference("a=\x1b[2J", "a=1"), "a: ?[2J there, 1 here");
    EXPECT_EQ(describe_difference(";;=;x", "x=1"), "x:  there, 1 here");
}

}  // namespace
}  // namespace picolm::cache
