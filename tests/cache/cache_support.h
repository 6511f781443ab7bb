// What the cache tests share: prompts whose payload bytes follow from their units, so that every
// byte a store hands out can be checked, and a file system that fails where it is told to.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cache/file_store.h"
#include "support.h"

namespace picolm::testing {

using Units = std::vector<uint32_t>;

// Whether tests may fork: not under the thread sanitizer.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kForks = false;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool kForks = false;
#else
inline constexpr bool kForks = true;
#endif
#else
inline constexpr bool kForks = true;
#endif

// A stand-in for a model: payload of a position is a function of all units up to it.
struct FakeModel {
    std::string identity = "format=1;model=fake;rope=10000";
    uint64_t position_bytes = 640;
    uint64_t hidden_bytes = 256;

    static void fill(const Key128& key, uint64_t n, std::vector<uint8_t>& out) {
        std::mt19937_64 random(key.low ^ key.high);
        while (n > 0) {
            const uint64_t word = random();
            const size_t part = static_cast<size_t>(std::min<uint64_t>(8, n));
            const auto* bytes = reinterpret_cast<const uint8_t*>(&word);
            out.insert(out.end(), bytes, bytes + part);
            n -= part;
        }
    }
    std::vector<uint8_t> payload(const Units& units, uint32_t first, uint32_t n) const {
        const auto keys = cache::chain_keys(cache::identity_key(identity), units);
        std::vector<uint8_t> out;
        for (uint32_t p = first; p < first + n; ++p) fill(keys[p + 1], position_bytes, out);
        return out;
    }
    std::vector<uint8_t> hidden(const Units& units) const {
        const auto keys = cache::chain_keys(cache::identity_key(identity), units);
        std::vector<uint8_t> out;
        fill(cache::next_key(keys.back(), 0xFFFFFFFF), hidden_bytes, out);
        return out;
    }
    cache::Query query(const Units& units) const {
        return {identity, units, UINT32_MAX, position_bytes, hidden_bytes};
    }
};

inline Result<cache::SaveReport> save(cache::Store& store, const FakeModel& model,
                                      const Units& units, uint32_t verified = 0,
                                      uint32_t max_positions = UINT32_MAX) {
    cache::SaveRequest request;
    request.query = model.query(units);
    request.query.max_positions = max_positions;
    request.verified = verified;
    request.payload = [&](uint32_t first, uint32_t n, const cache::Sink& sink) {
        // In uneven pieces, as a model's layers and heads would.
        const std::vector<uint8_t> bytes = model.payload(units, first, n);
        const size_t cut = bytes.size() / 3;
        sink({bytes.data(), cut});
        sink({bytes.data() + cut, bytes.size() - cut});
    };
    const std::vector<uint8_t> hidden = model.hidden(units);
    request.hidden = hidden;
    return store.save(request);
}

// Every promise a match makes, checked against the model.
inline void expect_right(const cache::Match& match, const FakeModel& model, const Units& units) {
    uint32_t position = 0;
    for (const cache::Segment& s : match.segments) {
        ASSERT_EQ(s.from, position);
        ASSERT_LE(s.first, s.from);
        ASSERT_GT(s.used, 0u);
        ASSERT_LE(s.from + s.used, s.first + s.n);
        ASSERT_EQ(s.first / 64, (s.first + s.n - 1) / 64);
        ASSERT_EQ(s.payload.size(), s.n * model.position_bytes);
        const std::vector<uint8_t> want = model.payload(units, s.from, s.used);
        const Bytes got = s.payload.subspan((s.from - s.first) * model.position_bytes, want.size());
        ASSERT_TRUE(std::equal(want.begin(), want.end(), got.begin()));
        position += s.used;
    }
    ASSERT_EQ(position, match.matched);
    ASSERT_GE(match.saved_positions, match.matched);
    if (match.hidden.empty()) return;
    const std::vector<uint8_t> want = model.hidden(units);
    ASSERT_EQ(match.hidden.size(), want.size());
    ASSERT_TRUE(std::equal(want.begin(), want.end(), match.hidden.begin()));
}

// Loads and checks; how many units matched.
inline uint32_t load_right(cache::Store& store, const FakeModel& model, const Units& units) {
    const cache::Match match = store.load(model.query(units));
    expect_right(match, model, units);
    return match.matched;
}

inline Units random_units(size_t n, uint32_t seed, uint32_t vocabulary = 32000) {
    std::mt19937 random(seed);
    Units units(n);
    for (uint32_t& unit : units) unit = static_cast<uint32_t>(random() % vocabulary);
    return units;
}

inline Units joined(Units a, const Units& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

inline bool warned(const cache::Match& match) {
    return std::any_of(match.notes.begin(), match.notes.end(),
                       [](const cache::Note& note) { return note.level == LogLevel::warning; });
}

inline std::string all_notes(const std::vector<cache::Note>& notes) {
    std::string text;
    for (const cache::Note& note : notes) text += note.text + "\n";
    return text;
}

// Counts every call and lets one of them fail, or be short. Everything else reaches the real
// system.
class FaultyFileSystem : public FileSystem {
  public:
    enum class Fault {
        error,      // the call does nothing and fails
        half,       // a read or write does half of its work and says so; other calls fail
        half_fail,  // a write does half of its work, and then fails
    };
    size_t fail_at = SIZE_MAX;  // index of the call
    int with_errno = EIO;
    Fault fault = Fault::error;
    size_t calls = 0;
    size_t writes = 0;        // calls that change something, locks aside
    std::string failed_call;  // name of the call that failed
    bool all_writes_fail = false;
    bool real_sync = false;

    // 0, or the negative errno to answer.
    int step(const char* name, bool changes) {
        writes += changes;
        const bool now = calls++ == fail_at || (changes && all_writes_fail);
        if (now) failed_call = name;
        return now ? -with_errno : 0;
    }

    int open(const std::string& path, Mode mode, std::unique_ptr<File>& out) override;
    int info(const std::string& path, FileInfo& out) override {
        const int error = step("info", false);
        return error ? error : posix_file_system().info(path, out);
    }
    int rename(const std::string& from, const std::string& to) override {
        const int error = step("rename", true);
        return error ? error : posix_file_system().rename(from, to);
    }
    int remove(const std::string& path) override {
        const int error = step("remove", true);
        return error ? error : posix_file_system().remove(path);
    }
    int sync_folder_of(const std::string& path) override {
        const int error = step("sync folder", true);
        return error || !real_sync ? error : posix_file_system().sync_folder_of(path);
    }
    int make_folder(const std::string& path) override {
        const int error = step("make folder", true);
        return error ? error : posix_file_system().make_folder(path);
    }
    int remove_folder(const std::string& path) override {
        const int error = step("remove folder", true);
        return error ? error : posix_file_system().remove_folder(path);
    }
    int list_folder(const std::string& path, std::vector<std::string>& names) override {
        const int error = step("list folder", false);
        return error ? error : posix_file_system().list_folder(path, names);
    }
    int free_space(const std::string& path, uint64_t& bytes) override {
        const int error = step("free space", false);
        return error ? error : posix_file_system().free_space(path, bytes);
    }
};

class FaultyFile : public File {
  public:
    FaultyFile(FaultyFileSystem& system, std::unique_ptr<File> file)
        : system_(system), file_(std::move(file)) {}
    int64_t read_at(void* out, size_t n, uint64_t offset) override {
        const int error = system_.step("read", false);
        if (!error) return file_->read_at(out, n, offset);
        if (system_.fault == FaultyFileSystem::Fault::error || n < 2) return error;
        return file_->read_at(out, n / 2, offset);
    }
    int64_t write_at(const void* data, size_t n, uint64_t offset) override {
        const int error = system_.step("write", true);
        if (!error) return file_->write_at(data, n, offset);
        if (system_.fault == FaultyFileSystem::Fault::error || n < 2) return error;
        const int64_t done = file_->write_at(data, n / 2, offset);
        return system_.fault == FaultyFileSystem::Fault::half ? done : error;
    }
    int truncate(uint64_t size) override {
        const int error = system_.step("truncate", true);
        return error ? error : file_->truncate(size);
    }
    int sync() override {
        const int error = system_.step("sync", true);
        return error || !system_.real_sync ? error : file_->sync();
    }
    int try_lock() override {
        const int error = system_.step("lock", false);
        return error ? error : file_->try_lock();
    }
    int info(FileInfo& out) override {
        const int error = system_.step("file info", false);
        return error ? error : file_->info(out);
    }
    int map(size_t size, std::shared_ptr<const uint8_t>& out) override {
        const int error = system_.step("map", false);
        return error ? error : file_->map(size, out);
    }

  private:
    FaultyFileSystem& system_;
    std::unique_ptr<File> file_;
};

inline int FaultyFileSystem::open(const std::string& path, Mode mode, std::unique_ptr<File>& out) {
    int error = step("open", mode == Mode::create || mode == Mode::append);
    if (error) return error;
    std::unique_ptr<File> file;
    error = posix_file_system().open(path, mode, file);
    if (!error) out = std::make_unique<FaultyFile>(*this, std::move(file));
    return error;
}

}  // namespace picolm::testing
