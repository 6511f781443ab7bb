// The bytes of a KVC file, damaged in every way a fuzzer finds. What is checked: no crash, a match
// that keeps its promises, and a save and a trim on top of it that do as well. The mutator starts
// from valid files and repairs checksums and keys after each change, so that the checks behind them
// are reached.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>

#include "cache/file_store.h"
#include "cache/memory_file_system.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace picolm {
namespace {

using namespace cache;
using Units = std::vector<uint32_t>;

constexpr const char* kPath = "fuzz.kvc";
constexpr const char* kIdentities[] = {"m=a;r=1", "m=b;r=1"};
constexpr uint64_t kPositionBytes = 4;
constexpr uint64_t kHiddenBytes = 8;

void require(bool condition) {
    if (!condition) std::abort();
}

// Prompts that share beginnings of all lengths: few different units.
Units prompt(uint32_t i) {
    std::mt19937 random(i % 5);
    Units units(1 + i * 29 % 90);
    for (uint32_t& unit : units) unit = static_cast<uint32_t>(random() % 2);
    units.back() = i;
    return units;
}

Query query_of(const Units& units, uint32_t i) {
    return {kIdentities[i % 2], units, i % 3 == 0 ? 40 : UINT32_MAX, i % 7 ? kPositionBytes : 0,
            i % 7 ? kHiddenBytes : 0};
}

uint32_t check_match(const Match& match, const Query& query, bool with_payload) {
    uint32_t position = 0;
    uint64_t sum = 0;
    for (const Segment& s : match.segments) {
        require(s.from == position && s.used > 0 && s.first <= s.from);
        require(s.from + s.used <= s.first + s.n && s.n <= 64);
        if (with_payload && query.position_bytes) {
            require(s.payload.size() == s.n * query.position_bytes);
        }
        for (const uint8_t byte : s.payload) sum += byte;
        position += s.used;
    }
    for (const uint8_t byte : match.hidden) sum += byte;
    require(position == match.matched && match.saved_positions >= match.matched);
    require(match.matched <= std::min<size_t>(query.units.size(), query.max_positions));
    require(match.hidden.empty() || match.matched == query.units.size());
    return match.matched + static_cast<uint32_t>(sum & 0);
}

Result<SaveReport> save(Store& store, const Units& units, uint32_t i) {
    SaveRequest request;
    request.query = query_of(units, i);
    request.query.position_bytes = kPositionBytes;
    request.query.hidden_bytes = kHiddenBytes;
    const uint8_t hidden[kHiddenBytes] = {1, 2, 3, 4};
    request.hidden = hidden;
    request.payload = [&](uint32_t, uint32_t n, const Sink& sink) {
        const std::vector<uint8_t> bytes(n * kPositionBytes, static_cast<uint8_t>(i));
        sink(bytes);
    };
    return store.save(request);
}

// A file as this program writes it, of a few prompts of one or two identities.
std::vector<uint8_t> valid_file(uint32_t seed) {
    testing::MemoryFileSystem files;
    FileStore store(kPath, {.files = &files});
    for (uint32_t i = seed; i < 1 + seed + seed % 4; ++i) (void)save(store, prompt(i), i);
    return *files.get(kPath);
}

uint64_t get(const uint8_t* p, size_t n) {
    uint64_t value = 0;
    for (size_t i = 0; i < n; ++i) value |= uint64_t{p[i]} << (8 * i);
    return value;
}
void put(uint8_t* p, uint64_t value, size_t n) {
    for (size_t i = 0; i < n; ++i) p[i] = static_cast<uint8_t>(value >> (8 * i));
}

// Calls f(record, bytes from there to the end of the file) for whatever begins like a record.
template <typename F>
void each_record(uint8_t* data, size_t size, F f) {
    for (size_t at = 0; at + kFixedHead <= size; at += kAlignment) {
        if (get(data + at, 4) == kMagic) f(data + at, size - at);
    }
}

void repair(uint8_t* p, size_t left, std::mt19937& random) {
    const uint64_t n = get(p + 12, 4);
    const uint64_t head = align_up(kFixedHead + 4 * n);
    if (n > kPage || head > left) return;
    const uint64_t payload = get(p + 72, 8);
    if (payload <= left - head && random() % 16) {
        put(p + 80, hash64({p + head, static_cast<size_t>(payload)}), 8);
    }
    if (random() % 16) {
        Key128 key = {get(p + 32, 8), get(p + 40, 8)};
        for (size_t i = 0; i < n; ++i) {
            key = next_key(key, static_cast<uint32_t>(get(p + kFixedHead + 4 * i, 4)));
        }
        put(p + 48, key.low, 8);
        put(p + 56, key.high, 8);
    }
    if (random() % 16) {
        put(p + 88, 0, 8);
        put(p + 88, hash64({p, static_cast<size_t>(head)}), 8);
    }
}

// One field of one record: to a small, a large or an odd value.
void change_field(uint8_t* data, size_t size, std::mt19937& random) {
    std::vector<uint8_t*> records;
    each_record(data, size, [&](uint8_t* p, size_t) { records.push_back(p); });
    if (records.empty()) return;
    uint8_t* p = records[random() % records.size()];
    constexpr size_t kFields[] = {4, 8, 12, 16, 32, 48, 64, 68, 72, 76, 80, 88, 96, 100};
    constexpr uint32_t kValues[] = {0,    1,     2,          3,          63,         64,
                                    65,   127,   128,        0x7FFFFFFF, 0x80000000, 0x80000001,
                                    4096, 16384, 0xFFFFFFC0, 0xFFFFFFFF};
    uint8_t* field = p + kFields[random() % std::size(kFields)];
    if (field + 4 > data + size) return;
    const uint32_t old = static_cast<uint32_t>(get(field, 4));
    const uint32_t values[] = {kValues[random() % std::size(kValues)], old + 1, old - 1,
                               static_cast<uint32_t>(random())};
    put(field, values[random() % 4], 4);
}

// Copies some 64-byte blocks over others.
void move_blocks(uint8_t* data, size_t size, std::mt19937& random) {
    const size_t blocks = size / kAlignment;
    if (blocks < 2) return;
    const size_t from = random() % blocks;
    const size_t to = random() % blocks;
    const size_t n = 1 + random() % std::min(blocks - std::max(from, to), size_t{12});
    std::memmove(data + to * kAlignment, data + from * kAlignment, n * kAlignment);
}

}  // namespace
}  // namespace picolm

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
    using namespace picolm;
    std::mt19937 random(seed);
    if (size < kFixedHead || random() % 64 == 0) {
        const std::vector<uint8_t> fresh = valid_file(static_cast<uint32_t>(random() % 64));
        size = std::min(fresh.size(), max_size);
        std::memcpy(data, fresh.data(), size);
    }
    switch (random() % 4) {
        case 0:
            size = LLVMFuzzerMutate(data, size, max_size);
            break;
        case 1:
            move_blocks(data, size, random);
            break;
        default:
            change_field(data, size, random);
    }
    each_record(data, size, [&](uint8_t* p, size_t left) { repair(p, left, random); });
    if (size > 4 && random() % 2) data[size - 1] = static_cast<uint8_t>(random());
    return size;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace picolm;
    testing::MemoryFileSystem files;
    files.put(kPath, {data, data + size});
    FileStore store(kPath, {.limit_bytes = 2500, .lock_wait_ms = 0, .files = &files});
    // Bytes that no check looks at choose what is asked.
    const uint32_t i = size > 4 ? data[size - 1] + 256 * data[size - 2] : 0;
    const Units units = prompt(i % 64);
    Query query = query_of(units, i);
    check_match(store.load(query), query, true);
    if (i % 2) return 0;
    for (const RecordInfo& info : store.list())
        require(info.header.n <= 64 && info.bytes() <= size);

    query.position_bytes = kPositionBytes;
    query.hidden_bytes = kHiddenBytes;
    check_match(store.find(query), query, false);
    const auto report = save(store, units, i);
    if (report) {
        require(check_match(store.load(query), query, true) >= report->positions_total);
        require(!files.get(kPath) || files.get(kPath)->size() <= 2500);
        (void)store.trim(1500);
        require(!files.get(kPath) || files.get(kPath)->size() <= 1500);
        check_match(store.load(query), query, true);
    } else {
        require(files.get(kPath)->size() == size &&
                std::memcmp(files.get(kPath)->data(), data, size) == 0);
    }
    return 0;
}
