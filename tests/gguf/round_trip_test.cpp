// What the writer writes, the reader reads; and real files of another writer.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "gguf/gguf.h"
#include "gguf/writer.h"
#include "gguf_bytes.h"
#include "support.h"

namespace picolm {
namespace {

using testing::TempDir;

std::function<Status(const GgufWriter::Sink&)> fill_with(uint8_t value, size_t n) {
    return [=](const GgufWriter::Sink& sink) -> Status {
        const std::vector<uint8_t> bytes(n, value);
        return sink(bytes);
    };
}

GgufWriter sample_writer() {
    GgufWriter w;
    w.put_u8("u8", 0xFF);
    w.put_i8("i8", -128);
    w.put_u16("u16", 0xFFFF);
    w.put_i16("i16", -32768);
    w.put_u32("u32", 0xFFFFFFFF);
    w.put_i32("i32", std::numeric_limits<int32_t>::min());
    w.put_u64("u64", 0xFFFFFFFFFFFFFFFF);
    w.put_i64("i64", std::numeric_limits<int64_t>::max());
    w.put_f32("f32", 0.1f);
    w.put_f64("f64", 0.1);
    w.put_bool("true", true);
    w.put_bool("false", false);
    w.put_string("string", std::string_view("a\0b", 3));
    w.put_string("empty", "");
    const std::string strings[] = {"", "one", "\xE2\x96\x81two"};
    w.put_strings("strings", strings);
    const float floats[] = {1.5f, -0.0f};
    w.put_f32s("f32s", floats);
    const int32_t ints[] = {-1, 7};
    w.put_i32s("i32s", ints);
    const uint64_t matrix[] = {32, 2};
    w.add_tensor("matrix", TensorType::q8_0, matrix, fill_with(7, 68));
    const uint64_t row[] = {3};
    w.add_tensor("row", TensorType::f32, row, fill_with(9, 12));
    return w;
}

TEST(Gguf, RoundTripOfEveryScalarType) {
    const std::vector<uint8_t> bytes = sample_writer().to_bytes();
    const auto parsed = GgufFile::parse(bytes, "sample");
    ASSERT_TRUE(parsed) << parsed.error().text;
    const GgufFile& f = *parsed;
    EXPECT_EQ(f.name(), "sample");
    EXPECT_EQ(f.version(), 3u);
    EXPECT_EQ(f.alignment(), 32u);
    EXPECT_EQ(f.file_size(), bytes.size());
    ASSERT_EQ(f.metadata().size(), 17u);
    EXPECT_EQ(f.metadata()[0].key, "u8");
    EXPECT_EQ(f.metadata()[16].key, "i32s");
    EXPECT_EQ(**f.get_uint("u8"), 0xFFu);
    EXPECT_EQ(**f.get_uint("u16"), 0xFFFFu);
    EXPECT_EQ(**f.get_uint("u32"), 0xFFFFFFFFu);
    EXPECT_EQ(**f.get_uint("u64"), 0xFFFFFFFFFFFFFFFFu);
    EXPECT_EQ(**f.get_uint("i64"), 0x7FFFFFFFFFFFFFFFu);
    EXPECT_EQ(**f.get_uint("true"), 1u);
    EXPECT_EQ(**f.get_bool("true"), true);
    EXPECT_EQ(**f.get_bool("false"), false);
    EXPECT_EQ(**f.get_float("f32"), static_cast<double>(0.1f));
    EXPECT_EQ(**f.get_float("f64"), 0.1);
    EXPECT_EQ(**f.get_string("string"), std::string_view("a\0b", 3));
    EXPECT_EQ(**f.get_string("empty"), "");
    EXPECT_EQ(f.find("i8")->type, MetaType::i8);
    EXPECT_EQ(f.find("i8")->data[0], 0x80);
    EXPECT_EQ(f.find("i16")->data[1], 0x80);
    EXPECT_EQ(f.find("i32")->data[3], 0x80);
}

TEST(Gguf, RoundTripOfArrays) {
    const std::vector<uint8_t> bytes = sample_writer().to_bytes();
    const auto f = GgufFile::parse(bytes, "sample");
    ASSERT_TRUE(f) << f.error().text;
    const auto strings = f->get_strings("strings");
    ASSERT_TRUE(strings && *strings);
    EXPECT_EQ(**strings, (std::vector<std::string_view>{"", "one", "\xE2\x96\x81two"}));
    const auto floats = f->get_f32_array("f32s");
    ASSERT_TRUE(floats && *floats);
    ByteReader float_reader(**floats);
    EXPECT_EQ(float_reader.f32(), 1.5f);
    EXPECT_TRUE(std::signbit(float_reader.f32()));
    const auto ints = f->get_i32_array("i32s");
    ASSERT_TRUE(ints && *ints);
    ByteReader int_reader(**ints);
    EXPECT_EQ(int_reader.u32(), 0xFFFFFFFFu);
    EXPECT_EQ(int_reader.u32(), 7u);
}

TEST(Gguf, RoundTripOfTensors) {
    const std::vector<uint8_t> bytes = sample_writer().to_bytes();
    const auto f = GgufFile::parse(bytes, "sample");
    ASSERT_TRUE(f) << f.error().text;
    ASSERT_EQ(f->tensors().size(), 2u);
    const TensorInfo* matrix = f->tensor("matrix");
    ASSERT_NE(matrix, nullptr);
    EXPECT_EQ(matrix->type, TensorType::q8_0);
    EXPECT_EQ(matrix->n_dims, 2u);
    EXPECT_EQ(matrix->dims, (std::array<uint64_t, 4>{32, 2, 1, 1}));
    EXPECT_EQ(matrix->offset % 32, 0u);
    ASSERT_EQ(matrix->data.size(), 68u);
    EXPECT_EQ(matrix->data[0], 7);
    EXPECT_EQ(matrix->data[67], 7);
    const TensorInfo* row = f->tensor("row");
    ASSERT_NE(row, nullptr);
    EXPECT_EQ(row->offset, matrix->offset + 96);
    EXPECT_EQ(row->data[11], 9);
    EXPECT_LE(f->header_bytes().size(), matrix->offset);
    EXPECT_GT(f->header_bytes().size() + 32, matrix->offset);
    EXPECT_EQ(f->tensor("no such"), nullptr);
    EXPECT_EQ(bytes.size() % 32, 0u);
}

TEST(Gguf, AbsentKeysAreNullopt) {
    const std::vector<uint8_t> bytes = sample_writer().to_bytes();
    const auto f = GgufFile::parse(bytes, "sample");
    ASSERT_TRUE(f);
    EXPECT_EQ(f->find("absent"), nullptr);
    EXPECT_FALSE(*f->get_uint("absent"));
    EXPECT_FALSE(*f->get_float("absent"));
    EXPECT_FALSE(*f->get_bool("absent"));
    EXPECT_FALSE(*f->get_string("absent"));
    EXPECT_FALSE(*f->get_strings("absent"));
    EXPECT_FALSE(*f->get_f32_array("absent"));
    EXPECT_FALSE(*f->get_i32_array("absent"));
}

TEST(Gguf, VersionTwoIsReadLikeThree) {
    std::vector<uint8_t> bytes = sample_writer().to_bytes();
    bytes[4] = 2;
    const auto f = GgufFile::parse(bytes, "sample");
    ASSERT_TRUE(f) << f.error().text;
    EXPECT_EQ(f->version(), 2u);
    EXPECT_EQ(f->tensors().size(), 2u);
}

TEST(Gguf, OtherAlignmentsAreWrittenAndHonoured) {
    for (const uint32_t alignment : {8u, 64u, 4096u}) {
        GgufWriter w(alignment);
        const uint64_t dims[] = {1};
        w.add_tensor("a", TensorType::f32, dims, fill_with(1, 4));
        w.add_tensor("b", TensorType::f32, dims, fill_with(2, 4));
        const std::vector<uint8_t> bytes = w.to_bytes();
        const auto f = GgufFile::parse(bytes, "aligned");
        ASSERT_TRUE(f) << f.error().text;
        EXPECT_EQ(f->alignment(), alignment);
        EXPECT_EQ(f->tensor("b")->offset - f->tensor("a")->offset, alignment);
        EXPECT_EQ(f->tensor("a")->offset % alignment, 0u);
        EXPECT_EQ(f->tensor("b")->data[3], 2);
    }
}

TEST(Gguf, ArraysOfArraysAreSteppedOver) {
    testing::RawGguf raw(0, 2);
    raw.key("nested", 9).u32(9).u64(2);
    raw.u32(8).u64(2).text("a").text("bc");
    raw.u32(9).u64(1).u32(7).u64(3).u8(0).u8(1).u8(1);
    raw.key("after", 4).u32(77);
    const auto f = GgufFile::parse(raw.view(), "nested");
    ASSERT_TRUE(f) << f.error().text;
    EXPECT_EQ(f->find("nested")->element, MetaType::array);
    EXPECT_EQ(f->find("nested")->count, 2u);
    EXPECT_EQ(**f->get_uint("after"), 77u);
}

TEST(Gguf, TensorsInAnyOrderWithGaps) {
    testing::RawGguf raw(2, 0);
    raw.tensor("late", {2}, 0, 64).tensor("early", {2}, 0, 0).align().zeros(72);
    const auto f = GgufFile::parse(raw.view(), "gaps");
    ASSERT_TRUE(f) << f.error().text;
    EXPECT_EQ(f->tensor("late")->offset, f->tensor("early")->offset + 64);
}

TEST(GgufWriter, FileEqualsBytesAndLeavesNothingElse) {
    const TempDir dir;
    ASSERT_TRUE(sample_writer().write(dir.file("m.gguf")));
    const std::vector<uint8_t> bytes = sample_writer().to_bytes();
    EXPECT_EQ(testing::read_array<uint8_t>(dir.file("m.gguf")), bytes);
    const auto f = GgufFile::open(dir.file("m.gguf"));
    ASSERT_TRUE(f) << f.error().text;
    EXPECT_EQ(f->tensor("row")->data[11], 9);
    int n_files = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path()))
        ++n_files;
    EXPECT_EQ(n_files, 1);
}

TEST(GgufWriter, LargePiecesAndManySmallOnes) {
    const TempDir dir;
    GgufWriter w;
    const uint64_t dims[] = {1 << 20};
    w.add_tensor("small pieces", TensorType::f32, dims, [](const GgufWriter::Sink& sink) -> Status {
        const std::vector<uint8_t> piece(1000, 3);
        for (int i = 0; i < 4194; ++i) TRY(sink(piece));
        return sink(Bytes(piece).first((4 << 20) - 4194 * 1000));
    });
    w.add_tensor("one piece", TensorType::f32, dims, fill_with(5, 4 << 20));
    ASSERT_TRUE(w.write(dir.file("m.gguf")));
    const auto f = GgufFile::open(dir.file("m.gguf"));
    ASSERT_TRUE(f) << f.error().text;
    for (const uint8_t b : f->tensor("small pieces")->data) ASSERT_EQ(b, 3);
    for (const uint8_t b : f->tensor("one piece")->data) ASSERT_EQ(b, 5);
}

TEST(GgufWriter, AFillOfTheWrongLengthIsAnErrorAndLeavesNoFile) {
    const TempDir dir;
    const uint64_t dims[] = {4};
    for (const size_t n : {15u, 17u}) {
        GgufWriter w;
        w.add_tensor("t", TensorType::f32, dims, fill_with(0, n));
        const Status status = w.write(dir.file("m.gguf"));
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().kind, ErrorKind::invalid);
        EXPECT_NE(status.error().text.find("16 bytes"), std::string::npos) << status.error().text;
        EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
    }
}

TEST(GgufWriter, AShapeThatTheTypeCannotHaveIsAnError) {
    const TempDir dir;
    const std::vector<std::vector<uint64_t>> shapes = {{}, {0}, {33}, {32, 0}, {32, 1, 1, 1, 1}};
    for (const auto& dims : shapes) {
        GgufWriter w;
        w.add_tensor("t", TensorType::q8_0, dims, fill_with(0, 34));
        const Status status = w.write(dir.file("m.gguf"));
        ASSERT_FALSE(status);
        EXPECT_EQ(status.error().kind, ErrorKind::invalid);
    }
}

TEST(GgufWriter, AFolderThatIsNotThereIsAnIoError) {
    const TempDir dir;
    const Status status = sample_writer().write(dir.file("no/such/m.gguf"));
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().kind, ErrorKind::io);
}

TEST(GgufGolden, EveryFileOfAnotherWriterReads) {
    if (testing::golden_dir().empty()) GTEST_SKIP() << testing::kNoGolden;
    int n_files = 0;
    int n_tensors = 0;
    for (const auto& entry : std::filesystem::directory_iterator(testing::golden_dir())) {
        if (entry.path().extension() != ".gguf") continue;
        SCOPED_TRACE(entry.path().filename());
        const auto f = GgufFile::open(entry.path());
        ASSERT_TRUE(f) << f.error().text;
        ++n_files;
        const auto arch = f->get_string("general.architecture");
        ASSERT_TRUE(arch && *arch);
        const auto tokens = f->get_strings("tokenizer.ggml.tokens");
        ASSERT_TRUE(tokens && *tokens);
        EXPECT_GE((*tokens)->size(), 512u);
        uint64_t end = f->header_bytes().size();
        for (const TensorInfo& tensor : f->tensors()) {
            ++n_tensors;
            EXPECT_EQ(f->tensor(tensor.name), &tensor);
            EXPECT_GE(tensor.offset, end);
            end = tensor.offset + tensor.data.size();
        }
        EXPECT_LE(f->file_size() - end, f->tensors().empty() ? f->file_size() : f->alignment());
    }
    EXPECT_GE(n_files, 25);
    EXPECT_GE(n_tensors, 400);
}

TEST(GgufGolden, KnownFactsOfOneModel) {
    if (testing::golden_dir().empty()) GTEST_SKIP() << testing::kNoGolden;
    const auto f = GgufFile::open(testing::golden_dir() + "/stories260K-q4_0.gguf");
    ASSERT_TRUE(f) << f.error().text;
    EXPECT_EQ(**f->get_string("general.architecture"), "llama");
    EXPECT_EQ(**f->get_uint("llama.embedding_length"), 64u);
    EXPECT_EQ(**f->get_uint("llama.block_count"), 5u);
    EXPECT_EQ(**f->get_uint("llama.attention.head_count_kv"), 4u);
    EXPECT_EQ((*f->get_strings("tokenizer.ggml.tokens"))->size(), 512u);
    EXPECT_EQ((*f->get_f32_array("tokenizer.ggml.scores"))->size(), 4 * 512u);
    EXPECT_EQ((*f->get_i32_array("tokenizer.ggml.token_type"))->size(), 4 * 512u);
    // Rows of 172 are no multiple of a block: the quantiser fell back.
    EXPECT_EQ(f->tensor("blk.0.ffn_down.weight")->type, TensorType::f16);
    EXPECT_EQ(f->tensor("blk.0.ffn_up.weight")->type, TensorType::q4_0);
    EXPECT_EQ(f->tensor("blk.4.attn_norm.weight")->n_dims, 1u);
}

}  // namespace
}  // namespace picolm
