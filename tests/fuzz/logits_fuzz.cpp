// The bytes of a file of saved logits, damaged in every way a fuzzer finds. What is checked: no
// crash, and that what is handed out keeps its promises. The mutator repairs the checksums after
// each change, so that the checks behind them are reached.
#include <algorithm>
#include <cstdlib>
#include <random>

#include "base/hash.h"
#include "cache/memory_file_system.h"
#include "engine/logits_file.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace picolm {
namespace {

constexpr const char* kPath = "fuzz.logits";

void require(bool condition) {
    if (!condition) std::abort();
}

std::vector<uint8_t> valid_file(uint32_t seed) {
    testing::MemoryFileSystem files;
    const LogitsHeader header{.n_vocab = 1 + seed % 9, .windows = {4, 1 + seed % 4, 2, 2}};
    const std::vector<TokenId> tokens(header.windows.n_tokens());
    const std::vector<float> logits(header.n_vocab, 1.5f);
    auto writer = LogitsWriter::create(kPath, header, tokens, files);
    require(writer.has_value());
    for (uint64_t i = 0; i < header.windows.n_scored(); ++i)
        require((*writer)->add(0, logits, log_softmax(logits)).has_value());
    require((*writer)->finish().has_value());
    return *files.get(kPath);
}

uint64_t get(const uint8_t* p, size_t n) {
    uint64_t value = 0;
    for (size_t i = 0; i < n; ++i) value |= uint64_t{p[i]} << (8 * i);
    return value;
}
void put(uint8_t* p, uint64_t value) {
    for (size_t i = 0; i < 8; ++i) p[i] = static_cast<uint8_t>(value >> (8 * i));
}

void repair(uint8_t* data, size_t size, std::mt19937& random) {
    const uint64_t n_tokens =
        get(data + 16, 4) +
        uint64_t{static_cast<uint32_t>(get(data + 28, 4) - 1)} * get(data + 20, 4);
    const uint64_t record = 24 + 2 * get(data + 12, 4);
    if (n_tokens <= (size - 56) / 4) {
        const size_t first = 56 + 4 * static_cast<size_t>(n_tokens);
        if (random() % 16) put(data + 40, hash64({data + 56, first - 56}));
        for (size_t at = first; record <= size - at; at += record)
            if (random() % 16) put(data + at, hash64({data + at + 8, record - 8}));
    }
    if (random() % 16) put(data + 48, hash64({data, 48}));
}

}  // namespace
}  // namespace picolm

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
    using namespace picolm;
    std::mt19937 random(seed);
    if (size < 56 || random() % 64 == 0) {
        const std::vector<uint8_t> fresh = valid_file(static_cast<uint32_t>(random() % 64));
        size = std::min(fresh.size(), max_size);
        std::copy_n(fresh.begin(), size, data);
    }
    if (random() % 2) {
        size = LLVMFuzzerMutate(data, size, max_size);
    } else {
        constexpr uint32_t kValues[] = {0,  1,        2,        3,          5,
                                        64, 1u << 20, 1u << 28, 0x7FFFFFFF, UINT32_MAX};
        const size_t field = 8 + 4 * (random() % 8);
        const uint32_t value = kValues[random() % std::size(kValues)];
        if (field + 4 <= size)
            for (size_t i = 0; i < 4; ++i) data[field + i] = static_cast<uint8_t>(value >> (8 * i));
    }
    if (size >= 56) repair(data, size, random);
    return size;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace picolm;
    testing::MemoryFileSystem files;
    files.put(kPath, {data, data + size});
    const auto reader = LogitsReader::open(kPath, files);
    if (!reader) return 0;
    const LogitsHeader& header = (*reader)->header();
    require(header.file_size() == size);
    require((*reader)->tokens().size() == header.windows.n_tokens());
    for (uint64_t i = 0; i < header.windows.n_scored(); ++i) {
        const Result<SavedLogits> saved = (*reader)->next();
        if (!saved) break;
        require(saved->steps.size() == header.n_vocab && saved->best < header.n_vocab);
        require(saved->log_probability <= 0);
    }
    return 0;
}
