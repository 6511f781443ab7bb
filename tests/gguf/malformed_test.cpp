// Files that are wrong (cases D1-D5): one error that names the file and the fault, nothing else.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "gguf/gguf.h"
#include "gguf/writer.h"
#include "gguf_bytes.h"
#include "support.h"

namespace picolm {
namespace {

using namespace std::string_view_literals;
using testing::RawGguf;

::testing::AssertionResult refused(Bytes bytes, ErrorKind kind, std::string_view words) {
    const auto result = GgufFile::parse(bytes, "FILE");
    if (result) return ::testing::AssertionFailure() << "was accepted";
    const Error& error = result.error();
    if (!error.text.starts_with("FILE: "))
        return ::testing::AssertionFailure() << "does not name the file: " << error.text;
    if (error.kind != kind || error.text.find(words) == std::string::npos)
        return ::testing::AssertionFailure()
               << "kind " << static_cast<int>(error.kind) << ": " << error.text;
    return ::testing::AssertionSuccess();
}

::testing::AssertionResult corrupt(const RawGguf& raw, std::string_view words) {
    return refused(raw.view(), ErrorKind::corrupt, words);
}

::testing::AssertionResult foreign(std::string_view text, std::string_view words) {
    return refused({reinterpret_cast<const uint8_t*>(text.data()), text.size()},
                   ErrorKind::unsupported, words);
}

TEST(GgufMalformed, D1_WebPages) {
    EXPECT_TRUE(foreign("<!DOCTYPE html>\n<html lang=\"en\">", "web page (HTML)"));
    EXPECT_TRUE(foreign("\xEF\xBB\xBF\n  <HTML>", "web page (HTML)"));
    EXPECT_TRUE(foreign("<?xml version=\"1.0\"?><Error><Code>AccessDenied", "AccessDenied"));
    EXPECT_TRUE(foreign("Entry not found", "\"Entry not found\""));
    EXPECT_TRUE(foreign("{\"error\":\"Repository not found\"}", "text file"));
}

TEST(GgufMalformed, D1_GitLfsPointer) {
    EXPECT_TRUE(foreign("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n",
                        "git lfs pull"));
}

TEST(GgufMalformed, D1_Archives) {
    EXPECT_TRUE(foreign("PK\x03\x04\x14\0\0\0"sv, "zip archive"));
    EXPECT_TRUE(foreign("\x1f\x8b\x08\0"sv, "gunzip"));
    EXPECT_TRUE(
        foreign("\xfd"
                "7zXZ\0"sv,
                "unxz"));
    EXPECT_TRUE(foreign("\x28\xb5\x2f\xfd\x04"sv, "unzstd"));
    EXPECT_TRUE(foreign("BZh91AY&SY", "bunzip2"));
    EXPECT_TRUE(foreign(std::string(257, 'a') + "ustar", "tar archive"));
}

TEST(GgufMalformed, D1_OldGgml) {
    for (const std::string_view magic : {"lmgg"sv, "fmgg"sv, "tjgg"sv})
        EXPECT_TRUE(foreign(std::string(magic) + std::string("\1\0\0\0", 4), "before GGUF"));
    EXPECT_TRUE(foreign("algg\1\0\0\0"sv, "LoRA"));
}

TEST(GgufMalformed, D1_Safetensors) {
    EXPECT_TRUE(foreign("\x40\x01\0\0\0\0\0\0{\"__metadata__\""sv, "safetensors"));
}

TEST(GgufMalformed, D1_OtherThings) {
    EXPECT_TRUE(foreign("", "empty"));
    EXPECT_TRUE(foreign(std::string(1000, '\0'), "zeros"));
    EXPECT_TRUE(
        foreign("\x7f"
                "ELF\2\1\1",
                "program"));
    EXPECT_TRUE(foreign("KVCP\1\0\0\0"sv, "prompt cache"));
    EXPECT_TRUE(foreign("FUGG\0\0\0\3"sv, "byte order"));
    EXPECT_TRUE(foreign("\x80\x02}q"sv, "pickle"));
    EXPECT_TRUE(foreign("GGU", "text file"));
    EXPECT_TRUE(foreign("\xde\xad\xbe\xef\1", "de ad be ef"));
    EXPECT_TRUE(foreign("\x01", "01 00 00 00"));
}

TEST(GgufMalformed, D1_OpenNamesThePath) {
    const testing::TempDir dir;
    testing::write_text(dir.file("page.gguf"), "<html>");
    const auto page = GgufFile::open(dir.file("page.gguf"));
    ASSERT_FALSE(page);
    EXPECT_TRUE(page.error().text.starts_with(dir.file("page.gguf") + ": ")) << page.error().text;
    const auto absent = GgufFile::open(dir.file("absent.gguf"));
    ASSERT_FALSE(absent);
    EXPECT_EQ(absent.error().kind, ErrorKind::io);
    const auto folder = GgufFile::open(dir.path());
    ASSERT_FALSE(folder);
    EXPECT_EQ(folder.error().kind, ErrorKind::io);
}

TEST(GgufMalformed, D1_Versions) {
    EXPECT_TRUE(refused(RawGguf(0, 0, 1).view(), ErrorKind::unsupported, "version 1"));
    EXPECT_TRUE(refused(RawGguf(0, 0, 0x03000000).view(), ErrorKind::unsupported, "big-endian"));
    EXPECT_TRUE(refused(RawGguf(0, 0, 4).view(), ErrorKind::unsupported, "version 4 is newer"));
    EXPECT_TRUE(corrupt(RawGguf(0, 0, 0), "version 0"));
}

TEST(GgufMalformed, D1_SplitFilesAreRefusedByName) {
    GgufWriter w;
    w.put_u16("split.no", 1);
    w.put_u16("split.count", 3);
    EXPECT_TRUE(refused(w.to_bytes(), ErrorKind::unsupported, "part 2 of a model split into 3"));
    GgufWriter whole;
    whole.put_u16("split.no", 0);
    whole.put_u16("split.count", 1);
    const std::vector<uint8_t> bytes = whole.to_bytes();
    EXPECT_TRUE(GgufFile::parse(bytes, "one part"));
}

// A model in miniature: metadata of every kind and three tensors, 96 + 32 + 32 bytes of data.
std::vector<uint8_t> small_model() {
    GgufWriter w;
    w.put_string("general.architecture", "llama");
    w.put_u32("llama.block_count", 1);
    const std::string tokens[] = {"<unk>", "<s>", "</s>"};
    w.put_strings("tokenizer.ggml.tokens", tokens);
    const float scores[] = {0, 0, 0};
    w.put_f32s("tokenizer.ggml.scores", scores);
    w.put_bool("tokenizer.ggml.add_bos_token", true);
    const auto fill = [](size_t n) {
        return [=](const GgufWriter::Sink& sink) -> Status {
            const std::vector<uint8_t> bytes(n, 1);
            return sink(bytes);
        };
    };
    const uint64_t a[] = {8, 3}, b[] = {32}, c[] = {8};
    w.add_tensor("token_embd.weight", TensorType::f32, a, fill(96));
    w.add_tensor("blk.0.attn_q.weight", TensorType::q4_0, b, fill(18));
    w.add_tensor("output_norm.weight", TensorType::f32, c, fill(32));
    return w.to_bytes();
}

TEST(GgufMalformed, D2_TruncatedDataNamesTheTensorAndTheBytes) {
    const std::vector<uint8_t> whole = small_model();
    const auto f = GgufFile::parse(whole, "whole");
    ASSERT_TRUE(f) << f.error().text;
    const uint64_t begin = f->tensor("output_norm.weight")->offset;
    const std::string text = "tensor \"output_norm.weight\" needs bytes " + std::to_string(begin) +
                             ".." + std::to_string(begin + 32) + ", the file has " +
                             std::to_string(whole.size() - 1);
    EXPECT_TRUE(refused(Bytes(whole).first(whole.size() - 1), ErrorKind::corrupt, text));
}

TEST(GgufMalformed, D2_EveryTruncationIsAnError) {
    const std::vector<uint8_t> whole = small_model();
    for (size_t n = 4; n < whole.size(); ++n) {
        // A copy of its own, so that the sanitizer sees any read past the end.
        const std::vector<uint8_t> part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(n));
        ASSERT_TRUE(refused(part, ErrorKind::corrupt, "incomplete")) << "at " << n;
        ASSERT_TRUE(refused(part, ErrorKind::corrupt, std::to_string(n))) << "at " << n;
    }
}

TEST(GgufMalformed, D2_OnlyThePaddingBehindTheLastTensorMayBeMissing) {
    GgufWriter w;
    const uint64_t dims[] = {1};
    w.add_tensor("t", TensorType::f32, dims, [](const GgufWriter::Sink& sink) -> Status {
        const uint8_t bytes[4] = {};
        return sink(bytes);
    });
    const std::vector<uint8_t> whole = w.to_bytes();
    EXPECT_TRUE(GgufFile::parse(Bytes(whole).first(whole.size() - 28), "no padding"));
    EXPECT_FALSE(GgufFile::parse(Bytes(whole).first(whole.size() - 29), "one byte short"));
}

TEST(GgufMalformed, D3_HugeCounts) {
    for (const uint64_t n : {uint64_t{1} << 63, ~uint64_t{0}, uint64_t{1} << 40, uint64_t{12}}) {
        EXPECT_TRUE(corrupt(RawGguf(0, n).zeros(136), "metadata entries"));
        EXPECT_TRUE(corrupt(RawGguf(n, 0).zeros(136), "tensors"));
    }
}

TEST(GgufMalformed, D3_MoreThanAnyModelHas) {
    RawGguf raw(0, 1 << 19);
    raw.zeros(16 << 20);
    EXPECT_TRUE(refused(raw.view(), ErrorKind::unsupported, "beyond the limit"));
}

TEST(GgufMalformed, D3_KeyLengths) {
    EXPECT_TRUE(corrupt(RawGguf(0, 1).u64(~uint64_t{0}).zeros(100), "key of 18446744073709551615"));
    EXPECT_TRUE(corrupt(RawGguf(0, 1).u64(65536).zeros(100), "key of 65536"));
    EXPECT_TRUE(corrupt(RawGguf(0, 1).u64(0).zeros(100), "key of 0"));
    EXPECT_TRUE(corrupt(RawGguf(0, 1).u64(100).zeros(50), "the file ends inside"));
}

TEST(GgufMalformed, D3_StringLengths) {
    RawGguf raw(0, 1);
    raw.key("general.name", 8).u64(uint64_t{1} << 30).zeros(100);
    ASSERT_LT(raw.view().size(), 170u);
    EXPECT_TRUE(corrupt(raw, "\"general.name\""));
    EXPECT_TRUE(corrupt(RawGguf(0, 1).key("k", 8).u64(~uint64_t{0}).zeros(100), "\"k\""));
}

TEST(GgufMalformed, D3_DimensionCounts) {
    for (const uint32_t n : {0u, 5u, 0xFFFFFFFFu})
        EXPECT_TRUE(corrupt(RawGguf(1, 0).text("t").u32(n).zeros(100), "dimensions"));
}

TEST(GgufMalformed, D3_ArrayCounts) {
    for (const uint32_t element : {0u, 4u, 8u, 9u, 10u})
        for (const uint64_t count : {uint64_t{1} << 61, ~uint64_t{0}, uint64_t{101}})
            EXPECT_TRUE(corrupt(RawGguf(0, 1).key("k", 9).u32(element).u64(count).zeros(100),
                                "the file ends inside the value"))
                << element << " " << count;
}

TEST(GgufMalformed, D3_StringArrayRunsPastTheEnd) {
    RawGguf raw(0, 1);
    raw.key("tokens", 9).u32(8).u64(3).text("a").text("b").u64(2).bytes("c");
    EXPECT_TRUE(corrupt(raw, "\"tokens\""));
}

TEST(GgufMalformed, D3_DeeplyNestedArrays) {
    RawGguf raw(0, 1);
    raw.key("deep", 9);
    for (int i = 0; i < 60000; ++i) raw.u32(9).u64(1);
    EXPECT_TRUE(refused(raw.view(), ErrorKind::unsupported, "nests arrays"));
}

TEST(GgufMalformed, D3_Alignments) {
    for (const uint32_t a : {0u, 1u, 3u, 4u, 24u, 1u << 30, 0xFFFFFFFFu})
        EXPECT_TRUE(corrupt(RawGguf(0, 1).key("general.alignment", 4).u32(a),
                            "general.alignment is " + std::to_string(a)));
    EXPECT_TRUE(corrupt(RawGguf(0, 1).key("general.alignment", 8).text("32"),
                        "\"general.alignment\" is string, expected an integer"));
    EXPECT_TRUE(corrupt(RawGguf(0, 1).key("general.alignment", 5).u32(0xFFFFFFFF), "is -1"));
    EXPECT_TRUE(corrupt(RawGguf(0, 1).key("split.count", 6).u32(0), "expected an integer"));
}

TEST(GgufMalformed, D3_ValueTypesThatDoNotExist) {
    EXPECT_TRUE(corrupt(RawGguf(0, 1).key("k", 13).zeros(50), "value type 13"));
    EXPECT_TRUE(corrupt(RawGguf(0, 1).key("k", 9).u32(77).u64(1).zeros(50), "value type 77"));
    EXPECT_TRUE(
        corrupt(RawGguf(0, 1).key("k", 9).u32(9).u64(1).u32(14).u64(1).zeros(50), "value type 14"));
    EXPECT_TRUE(corrupt(RawGguf(0, 1).key("k", 7).u8(2), "neither 0 nor 1"));
    EXPECT_TRUE(corrupt(RawGguf(0, 1).key("k", 9).u32(7).u64(2).u8(1).u8(9), "neither 0 nor 1"));
    EXPECT_STREQ(meta_type_name(static_cast<MetaType>(13)), "unknown");
}

TEST(GgufMalformed, D3_DuplicateKeys) {
    RawGguf raw(0, 2);
    raw.key("llama.block_count", 4).u32(1).key("llama.block_count", 4).u32(2);
    EXPECT_TRUE(corrupt(raw, "\"llama.block_count\" appears twice"));
}

TEST(GgufMalformed, D3_HostileKeysAreShownSafely) {
    RawGguf raw(0, 2);
    raw.key("\x1b[31m\n\xff", 0).u8(1).key("\x1b[31m\n\xff", 0).u8(1);
    EXPECT_TRUE(corrupt(raw, "\"?[31m??\" appears twice"));
}

RawGguf one_tensor(std::initializer_list<uint64_t> dims, uint32_t type, uint64_t offset) {
    RawGguf raw(1, 0);
    raw.tensor("t", dims, type, offset).align().zeros(256);
    return raw;
}

TEST(GgufMalformed, D4_Dimensions) {
    EXPECT_TRUE(corrupt(one_tensor({0}, 0, 0), "dimension of 0"));
    EXPECT_TRUE(corrupt(one_tensor({4, 0}, 0, 0), "dimension of 0"));
    EXPECT_TRUE(corrupt(one_tensor({(uint64_t{1} << 42) + 1}, 0, 0), "needs bytes"));
    EXPECT_TRUE(corrupt(one_tensor({~uint64_t{0}}, 0, 0), "more than any file"));
    EXPECT_TRUE(corrupt(one_tensor({65}, 0, 0), "needs bytes"));
    EXPECT_TRUE(GgufFile::parse(one_tensor({64}, 0, 0).view(), "fits"));
}

TEST(GgufMalformed, D4_ProductsThatWrap) {
    const uint64_t k32 = uint64_t{1} << 32;
    EXPECT_TRUE(corrupt(one_tensor({k32, k32}, 0, 0), "more than any file"));
    EXPECT_TRUE(corrupt(one_tensor({k32, k32, 1, 1}, 2, 0), "more than any file"));
    // 2^62 + 1 floats are 4 bytes modulo 2^64.
    EXPECT_TRUE(corrupt(one_tensor({(uint64_t{1} << 62) + 1}, 0, 0), "more than any file"));
    EXPECT_TRUE(corrupt(one_tensor({1 << 16, 1 << 16, 1 << 16, 1 << 16}, 0, 0), "more than any"));
    EXPECT_TRUE(corrupt(one_tensor({uint64_t{1} << 60}, 0, 0), "needs bytes"));
}

TEST(GgufMalformed, D4_Offsets) {
    EXPECT_TRUE(corrupt(one_tensor({4}, 0, 256), "needs bytes"));
    EXPECT_TRUE(corrupt(one_tensor({4}, 0, uint64_t{1} << 50), "needs bytes"));
    EXPECT_TRUE(corrupt(one_tensor({4}, 0, ~uint64_t{31}), "the file has"));
    EXPECT_TRUE(corrupt(one_tensor({4}, 0, 16), "alignment 32"));
    EXPECT_TRUE(corrupt(one_tensor({4}, 0, 1), "alignment 32"));
}

TEST(GgufMalformed, D4_RowsThatAreNoMultipleOfTheBlock) {
    EXPECT_TRUE(corrupt(one_tensor({16, 2}, 2, 0), "Q4_0 comes in blocks of 32"));
    EXPECT_TRUE(corrupt(one_tensor({128, 2}, 12, 0), "Q4_K comes in blocks of 256"));
}

TEST(GgufMalformed, D4_OverlappingTensors) {
    RawGguf raw(2, 0);
    raw.tensor("first", {16}, 0, 0).tensor("second", {4}, 0, 32).align().zeros(64);
    EXPECT_TRUE(corrupt(raw, "\"first\" and \"second\" overlap"));
    RawGguf same(2, 0);
    same.tensor("a", {4}, 0, 0).tensor("b", {4}, 0, 0).align().zeros(64);
    EXPECT_TRUE(corrupt(same, "overlap"));
}

TEST(GgufMalformed, D4_UnknownTypes) {
    EXPECT_TRUE(refused(one_tensor({256}, 16, 0).view(), ErrorKind::unsupported, "IQ2_XXS"));
    EXPECT_TRUE(refused(one_tensor({32}, 24, 0).view(), ErrorKind::unsupported, "type I8"));
    EXPECT_TRUE(corrupt(one_tensor({32}, 9999, 0), "type 9999"));
    EXPECT_TRUE(corrupt(one_tensor({32}, 0xFFFFFFFF, 0), "type 4294967295"));
}

TEST(GgufMalformed, D4_DuplicateTensorNames) {
    RawGguf raw(2, 0);
    raw.tensor("blk.0.w", {4}, 0, 0).tensor("blk.0.w", {4}, 0, 32).align().zeros(64);
    EXPECT_TRUE(corrupt(raw, "\"blk.0.w\" appears twice"));
}

TEST(GgufMalformed, D4_TensorNames) {
    EXPECT_TRUE(corrupt(RawGguf(1, 0).u64(0).zeros(100), "name of 0"));
    EXPECT_TRUE(
        corrupt(RawGguf(1, 0).u64(~uint64_t{0}).zeros(100), "name of 18446744073709551615"));
    EXPECT_TRUE(corrupt(RawGguf(1, 0).u64(256).zeros(500), "name of 256"));
    EXPECT_TRUE(corrupt(RawGguf(1, 0).u64(200).zeros(50), "the file ends inside"));
}

TEST(GgufMalformed, D5_GettersRefuseOtherTypesAndSayWhich) {
    RawGguf raw(0, 6);
    raw.key("scores", 9).u32(0).u64(3).u8(1).u8(2).u8(3);  // an array of u8 where f32 belongs
    raw.key("negative", 1).u8(0xFF);
    raw.key("text", 8).text("x");
    raw.key("i16", 3).u8(0xFE).u8(0xFF);
    raw.key("i64", 11).u64(~uint64_t{0} - 4);
    raw.key("one", 4).u32(1);
    const auto f = GgufFile::parse(raw.view(), "FILE");
    ASSERT_TRUE(f) << f.error().text;
    const auto scores = f->get_f32_array("scores");
    ASSERT_FALSE(scores);
    EXPECT_EQ(scores.error().kind, ErrorKind::corrupt);
    EXPECT_EQ(scores.error().text,
              "FILE: the metadata key \"scores\" is an array of u8, expected an array of f32");
    EXPECT_FALSE(f->get_i32_array("scores"));
    EXPECT_FALSE(f->get_strings("scores"));
    EXPECT_FALSE(f->get_strings("text"));
    EXPECT_FALSE(f->get_uint("scores"));
    EXPECT_FALSE(f->get_uint("text"));
    EXPECT_FALSE(f->get_float("text"));
    EXPECT_FALSE(f->get_float("one"));
    EXPECT_FALSE(f->get_bool("one"));
    EXPECT_FALSE(f->get_string("one"));
    EXPECT_NE(f->get_uint("negative").error().text.find("is -1"), std::string::npos);
    EXPECT_NE(f->get_uint("i16").error().text.find("is -2"), std::string::npos);
    EXPECT_NE(f->get_uint("i64").error().text.find("is -5"), std::string::npos);
}

}  // namespace
}  // namespace picolm
