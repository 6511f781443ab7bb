// What several test programs share: where the golden data are, temporary folders, file helpers.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace picolm::testing {

// The folder of reference values beside the checkout, or "" where there is none: a golden test
// then says GTEST_SKIP() << kNoGolden.
inline std::string golden_dir() {
    const char* set = std::getenv("PICOLM_GOLDEN");
    const std::string dir = set ? set : std::string(PICOLM_SOURCE_DIR) + "/../shared/golden";
    return std::filesystem::exists(dir + "/README.md") ? dir : "";
}
inline constexpr const char* kNoGolden = "no golden data beside this checkout";

// A fresh folder, removed with everything in it at the end of the scope.
class TempDir {
  public:
    TempDir() : TempDir(std::filesystem::temp_directory_path()) {}
    explicit TempDir(const std::filesystem::path& where) {
        std::string pattern = where / "picolm-test-XXXXXX";
        path_ = mkdtemp(pattern.data());
    }
    ~TempDir() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;
    const std::string& path() const { return path_; }
    std::string file(const std::string& name) const { return path_ + "/" + name; }

  private:
    std::string path_;
};

// For tests that make very many small files: a folder in memory, where the system has one.
inline std::filesystem::path memory_folder() {
    const std::filesystem::path shared = "/dev/shm";
    return access(shared.c_str(), W_OK) == 0 ? shared : std::filesystem::temp_directory_path();
}

inline std::string read_text(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}
inline void write_text(const std::string& path, std::string_view text) {
    std::ofstream(path, std::ios::binary) << text;
}
template <typename T>
std::vector<T> read_array(const std::string& path) {
    const std::string text = read_text(path);
    std::vector<T> values(text.size() / sizeof(T));
    std::copy_n(text.data(), values.size() * sizeof(T), reinterpret_cast<char*>(values.data()));
    return values;
}

}  // namespace picolm::testing
