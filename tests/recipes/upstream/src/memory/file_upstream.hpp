#pragma once

#include <cstddef>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

/// @file
/// Memory on disk, for arrays larger than the machine's own.

namespace lockstep {

/// Pieces of files without a name, which go with the process.
class FileUpstream {
 public:
  /// @param folder on a file system with room for all that is allocated.
  explicit FileUpstream(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Memory of `bytes` bytes, or null where the disk has no more.
  void* allocate(std::size_t bytes) const {
    const int file = open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0) return nullptr;
    // Room is taken now: a write to a page without any would end the process.
    void* data = MAP_FAILED;
    if (posix_fallocate(file, 0, static_cast<off_t>(bytes)) == 0)
      data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return data == MAP_FAILED ? nullptr : data;
  }
  /// Gives it back.
  void deallocate(void* data, std::size_t bytes) const noexcept { munmap(data, bytes); }

 private:
  std::filesystem::path folder_;
};

}  // namespace lockstep
