#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>

/// @file
/// Memory in which a rank's part of a checkpoint waits to be written.

namespace lockstep::checkpoint {

/// Alignment at which files are written past the page cache.
inline constexpr std::uint64_t page_bytes = 4096;

/// One block of memory, kept from save to save, the process' own or a file's, out of which runs of
/// bytes are given that lie to pages as they will in their file.
class Staging {
 public:
  Staging() = default;
  /// Memory of a file that its owner alone may read, in a file system in memory: it outlives the
  /// process.
  explicit Staging(std::filesystem::path file) : file_(std::move(file)) {}
  /// Gives all back, and has room for so many bytes in so many runs. @throws OutOfMemory, and
  /// io::FileError where the file system has no room.
  void reserve(std::uint64_t bytes, std::size_t runs);
  /// Has the system provide all of the memory, which it else does page by page when it is written.
  /// @param stops ends it before.
  void touch(const std::atomic<bool>& stops) noexcept;
  /// The next run. @param offset of its first byte in its file.
  std::span<std::byte> take(std::uint64_t bytes, std::uint64_t offset);
  /// All that was taken, and what lies between.
  std::span<std::byte> taken() const noexcept { return {memory_.get(), used_}; }

 private:
  struct Free {
    Free() noexcept : mapped(0) {}
    explicit Free(std::uint64_t bytes) noexcept : mapped(bytes) {}
    void operator()(std::byte* memory) const noexcept;
    std::uint64_t mapped;  // bytes of a file; 0: it is none
  };
  using Memory = std::unique_ptr<std::byte[], Free>;
  static Memory allocate(std::uint64_t bytes);
  static Memory map(const std::filesystem::path& file, std::uint64_t bytes);

  std::filesystem::path file_;  // empty: none
  Memory memory_;
  std::uint64_t size_ = 0, used_ = 0;
};

}  // namespace lockstep::checkpoint
