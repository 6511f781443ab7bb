// Any bytes through the GGUF reader, then everything it hands out is touched. Starts from files of
// the writer, which the mutator puts in where there is nothing like a GGUF file to mutate.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "gguf/gguf.h"
#include "gguf/writer.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace picolm {
namespace {

// A broken promise of the reader stops the run like a crash.
void require(bool promise) {
    if (!promise) std::abort();
}

volatile uint8_t touched;

void touch(Bytes bytes) {
    if (bytes.empty()) return;
    touched = bytes.front();
    touched = bytes.back();
}

void touch_metadata(const GgufFile& file) {
    for (const GgufFile::Entry& entry : file.metadata()) {
        require(file.find(entry.key) == &entry.value);
        require(*meta_type_name(entry.value.type) != '\0');
        touch(entry.value.data);
        (void)file.get_uint(entry.key).has_value();
        (void)file.get_float(entry.key).has_value();
        (void)file.get_bool(entry.key).has_value();
        const auto string = file.get_string(entry.key);
        if (string) require((*string)->size() == entry.value.data.size());
        const auto strings = file.get_strings(entry.key);
        if (strings) require((*strings)->size() == entry.value.count);
        const auto floats = file.get_f32_array(entry.key);
        if (floats) require((*floats)->size() == 4 * entry.value.count);
        const auto ints = file.get_i32_array(entry.key);
        if (ints) require((*ints)->size() == 4 * entry.value.count);
    }
}

void touch_tensors(const GgufFile& file) {
    for (const TensorInfo& tensor : file.tensors()) {
        require(file.tensor(tensor.name) == &tensor);
        require(tensor.offset % file.alignment() == 0);
        require(!tensor.data.empty() && tensor.offset >= file.header_bytes().size());
        require(tensor.offset + tensor.data.size() <= file.file_size());
        size_t n = row_bytes(tensor.type, static_cast<size_t>(tensor.dims[0]));
        for (size_t i = 1; i < 4; ++i) n *= static_cast<size_t>(tensor.dims[i]);
        require(n == tensor.data.size());
        touch(tensor.data);
    }
}

// A small file with something of everything; `choice` varies what is in it.
std::vector<uint8_t> sample(unsigned choice) {
    GgufWriter w(choice & 1 ? 64 : 32);
    w.put_string("general.architecture", "llama");
    if (choice & 2) {
        w.put_u8("u8", 1);
        w.put_i8("i8", -1);
        w.put_u16("split.count", 1);
        w.put_i16("i16", -1);
        w.put_u64("u64", 1);
        w.put_i64("i64", -1);
        w.put_f64("f64", 1);
        w.put_bool("bool", true);
    }
    if (choice & 4) {
        const std::string strings[] = {"<unk>", "a", ""};
        w.put_strings("tokenizer.ggml.tokens", strings);
        const float floats[] = {0, -1};
        w.put_f32s("tokenizer.ggml.scores", floats);
        const int32_t ints[] = {1, 2};
        w.put_i32s("tokenizer.ggml.token_type", ints);
        const uint8_t nested[] = {9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7,
                                  0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0};
        w.put_raw("nested", MetaType::array, nested);
    }
    const auto fill = [](size_t n) {
        return [=](const GgufWriter::Sink& sink) -> Status {
            const std::vector<uint8_t> bytes(n, 1);
            return sink(bytes);
        };
    };
    const uint64_t row[] = {4}, matrix[] = {32, 2}, block[] = {256, 1, 1, 1};
    w.add_tensor("norm", TensorType::f32, row, fill(16));
    if (choice & 8) w.add_tensor("q", TensorType::q4_0, matrix, fill(36));
    if (choice & 16) w.add_tensor("k", TensorType::q4_k, block, fill(144));
    std::vector<uint8_t> bytes = w.to_bytes();
    if (choice & 32) bytes[4] = 2;
    return bytes;
}

// One field of a file set to a value from where arithmetic breaks.
void set_a_number(uint8_t* data, size_t size, unsigned seed) {
    static constexpr uint64_t kNumbers[] = {0,
                                            1,
                                            8,
                                            9,
                                            31,
                                            32,
                                            33,
                                            0xFF,
                                            0xFFFF,
                                            0x7FFFFFFF,
                                            0xFFFFFFFF,
                                            uint64_t{1} << 42,
                                            uint64_t{1} << 61,
                                            uint64_t{1} << 62,
                                            uint64_t{1} << 63,
                                            ~uint64_t{0}};
    const size_t width = seed & 1 ? 4 : 8;
    if (size < width) return;
    const uint64_t value = kNumbers[(seed >> 1) % std::size(kNumbers)];
    std::memcpy(data + (seed >> 5) % (size - width + 1), &value, width);
}

}  // namespace
}  // namespace picolm

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
    if (size < 4 || seed % 512 == 0) {
        const std::vector<uint8_t> fresh = picolm::sample(seed >> 9);
        size = std::min(fresh.size(), max_size);
        std::memcpy(data, fresh.data(), size);
        return size;
    }
    if (seed % 4 == 0) {
        picolm::set_a_number(data, size, seed >> 2);
        return size;
    }
    return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace picolm;
    const auto file = GgufFile::parse({data, size}, "FILE");
    if (!file) {
        const std::string& text = file.error().text;
        require(text.starts_with("FILE: ") && text.size() > 10 && text.size() < 600);
        require(std::none_of(text.begin(), text.end(),
                             [](char c) { return static_cast<unsigned char>(c) < 0x20; }));
        return 0;
    }
    touch(file->header_bytes());
    touch_metadata(*file);
    touch_tensors(*file);
    return 0;
}
