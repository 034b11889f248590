#pragma once

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include <unistd.h>

/// @file
/// A folder of a test's own.

namespace lockstep::testing {

/// Creates an empty folder and removes it with all it holds.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    static std::atomic<int> counter{0};
    path_ = std::filesystem::temp_directory_path() /
            ("lockstep-test-" + std::to_string(::getpid()) + "-" + std::to_string(counter++));
    std::filesystem::remove_all(path_);  // of a test that was killed, under the same process id
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// The path of a file in the folder.
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  /// Writes a file and returns its path.
  std::filesystem::path write(std::string_view name, std::string_view contents) const {
    const auto path = path_ / name;
    std::ofstream(path, std::ios::binary) << contents;
    return path;
  }
  /// Number of files and folders in it, hidden ones included.
  std::ptrdiff_t count() const {
    return std::distance(std::filesystem::directory_iterator(path_), {});
  }

 private:
  std::filesystem::path path_;
};

/// All bytes of a file.
inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace lockstep::testing
