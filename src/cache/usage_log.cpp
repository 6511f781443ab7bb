#include "cache/usage_log.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "base/bytes.h"

namespace picolm::cache {
namespace {

constexpr size_t kEntry = 40, kSummed = 32;
constexpr size_t kMost = 64 << 20;  // of the file that is read

void put_u64(uint8_t* out, uint64_t value) {
    for (int i = 0; i < 8; ++i) out[i] = static_cast<uint8_t>(value >> 8 * i);
}
uint64_t get_u64(const uint8_t* in) {
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value |= uint64_t{in[i]} << 8 * i;
    return value;
}

void encode(const Key128& own, const Usage& usage, uint8_t out[kEntry]) {
    put_u64(out, own.low);
    put_u64(out + 8, own.high);
    put_u64(out + 16, static_cast<uint64_t>(usage.last_ns));
    put_u64(out + 24, usage.n);
    put_u64(out + kSummed, hash64({out, kSummed}));
}

}  // namespace

int add_usage(FileSystem& files, const std::string& path, const Key128& own, int64_t now_ns,
              uint64_t& size) {
    std::unique_ptr<File> file;
    int error = files.open(path, FileSystem::Mode::append, file);
    if (error) return error;
    uint8_t entry[kEntry];
    encode(own, {now_ns, 1}, entry);
    error = write_fully(*file, entry, sizeof entry, 0);
    FileInfo info;
    if (!error) error = file->info(info);
    size = info.size;
    return error;
}

std::map<Key128, Usage> read_usage(FileSystem& files, const std::string& path) {
    std::map<Key128, Usage> usage;
    std::unique_ptr<File> file;
    FileInfo info;
    if (files.open(path, FileSystem::Mode::read, file) != 0 || file->info(info) != 0 ||
        info.kind != FileKind::regular)
        return usage;
    std::vector<uint8_t> bytes(static_cast<size_t>(std::min<uint64_t>(info.size, kMost)));
    const int64_t got = read_fully(*file, bytes.data(), bytes.size(), info.size - bytes.size());
    const size_t n = got < 0 ? 0 : static_cast<size_t>(got);
    for (size_t at = 0; at + kEntry <= n;) {
        const uint8_t* entry = bytes.data() + at;
        if (hash64({entry, kSummed}) != get_u64(entry + kSummed)) {
            ++at;  // the rest of an entry that was cut
            continue;
        }
        Usage& one = usage[{get_u64(entry), get_u64(entry + 8)}];
        one.last_ns = std::max(one.last_ns, static_cast<int64_t>(get_u64(entry + 16)));
        one.n += get_u64(entry + 24);
        at += kEntry;
    }
    return usage;
}

int write_usage(FileSystem& files, const std::string& path, const std::string& temporary,
                const std::map<Key128, Usage>& usage) {
    std::unique_ptr<File> file;
    int error = files.open(temporary, FileSystem::Mode::create, file);
    if (error) return error;
    std::vector<uint8_t> bytes(usage.size() * kEntry);
    uint8_t* out = bytes.data();
    for (const auto& [own, one] : usage) {
        encode(own, one, out);
        out += kEntry;
    }
    error = write_fully(*file, bytes.data(), bytes.size(), 0);
    if (!error) error = files.rename(temporary, path);
    if (error) files.remove(temporary);
    return error;
}

}  // namespace picolm::cache
