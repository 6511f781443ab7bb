// What the reader allocates is bounded by the bytes that are there, not by what they claim.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <new>

#include "gguf/gguf.h"
#include "gguf_bytes.h"
#include "support.h"

namespace {

std::atomic<size_t> largest{0};

void* count_and_allocate(size_t n) {
    size_t seen = largest.load();
    while (n > seen && !largest.compare_exchange_weak(seen, n)) {
    }
    if (void* p = std::malloc(n ? n : 1)) return p;
    std::abort();
}

}  // namespace

void* operator new(size_t n) {
    return count_and_allocate(n);
}
void* operator new[](size_t n) {
    return count_and_allocate(n);
}
void operator delete(void* p) noexcept {
    std::free(p);
}
void operator delete[](void* p) noexcept {
    std::free(p);
}
void operator delete(void* p, size_t) noexcept {
    std::free(p);
}
void operator delete[](void* p, size_t) noexcept {
    std::free(p);
}

namespace picolm {
namespace {

using testing::RawGguf;

size_t largest_allocation_of(Bytes bytes) {
    largest = 0;
    const auto file = GgufFile::parse(bytes, "FILE");
    if (file)
        for (const GgufFile::Entry& entry : file->metadata())
            (void)file->get_strings(entry.key).has_value();
    return largest;
}

TEST(GgufAllocation, D3_AClaimInASmallFileReservesNothing) {
    const uint64_t huge = uint64_t{1} << 61;
    const RawGguf files[] = {
        RawGguf(0, huge).zeros(136),
        RawGguf(huge, 0).zeros(136),
        RawGguf(0, 8).key("general.name", 8).u64(1 << 30).zeros(100),
        RawGguf(0, 1).u64(1 << 30).zeros(100),
        RawGguf(0, 1).key("k", 9).u32(8).u64(huge).zeros(100),
        RawGguf(0, 1).key("k", 9).u32(4).u64(huge).zeros(100),
        RawGguf(0, 1).key("k", 9).u32(9).u64(huge).zeros(100),
        RawGguf(1, 0).tensor("t", {uint64_t{1} << 40}, 0, 0).zeros(100),
    };
    for (const RawGguf& raw : files) {
        ASSERT_LT(raw.view().size(), 200u);
        EXPECT_LE(largest_allocation_of(raw.view()), 1024u);
    }
}

// The densest honest contents: the shortest entries, the shortest strings, the shortest tensors.
TEST(GgufAllocation, D3_TheDensestFilesStayInProportion) {
    const std::string_view digits = "0123456789abcdefghijklmnopqrstuvwxyz";
    RawGguf entries(0, 36 * 36);
    RawGguf tensors(36 * 36, 0);
    for (const char a : digits)
        for (const char b : digits) {
            const std::string name = {a, b};
            entries.key(name, 0).u8(1);
            tensors.tensor(name, {1}, 0, 0);
        }
    RawGguf strings(0, 1);
    strings.key("k", 9).u32(8).u64(10000).zeros(80000);
    for (const RawGguf* raw : {&entries, &tensors, &strings})
        EXPECT_LE(largest_allocation_of(raw->view()), 8 * raw->view().size());
    EXPECT_TRUE(GgufFile::parse(entries.view(), "entries"));
    EXPECT_TRUE(GgufFile::parse(strings.view(), "strings"));
}

TEST(GgufAllocation, EveryFileThatFuzzingKept) {
    const std::string folder = std::string(PICOLM_SOURCE_DIR) + "/tests/fuzz/corpus/gguf";
    int n_files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const std::vector<uint8_t> bytes = testing::read_array<uint8_t>(entry.path());
        EXPECT_LE(largest_allocation_of(bytes), 1024 + 8 * bytes.size()) << entry.path();
        ++n_files;
    }
    EXPECT_GE(n_files, 20);
}

}  // namespace
}  // namespace picolm
