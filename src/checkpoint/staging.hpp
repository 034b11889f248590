#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "lockstep/core/device.hpp"

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
  /// Pins the memory, so that devices copy right into it, slice by slice: such a call keeps others
  /// from the driver. Where the system refuses, the rest stays as it is. What lies there stays.
  /// @param device one of them; without, nothing is done.
  /// @param stops ends it before the next slice.
  void pin(std::optional<Device> device, const std::atomic<bool>& stops) noexcept;
  /// The next run. @param offset of its first byte in its file.
  std::span<std::byte> take(std::uint64_t bytes, std::uint64_t offset);
  /// What can be copied at once of some bytes that were taken.
  struct Stretch {
    std::span<std::byte> bytes;  ///< the first of them
    bool is_pinned;
  };
  /// @param bytes of it, not none.
  Stretch stretch(std::span<std::byte> bytes) const noexcept;
  /// All that was taken, and what lies between.
  std::span<std::byte> taken() const noexcept { return {memory_.get(), used_}; }

 private:
  struct Free {
    Free() noexcept : Free(0) {}
    explicit Free(std::uint64_t bytes) noexcept : mapped(bytes), pinned(0), pinned_by(cpu) {}
    void operator()(std::byte* memory) const noexcept;
    std::uint64_t mapped;  // bytes
    std::uint64_t pinned;  // how many of the first
    Device pinned_by;
  };
  using Memory = std::unique_ptr<std::byte[], Free>;
  static Memory allocate(std::uint64_t bytes);
  static Memory map(const std::filesystem::path& file, std::uint64_t bytes);

  std::filesystem::path file_;  // empty: none
  Memory memory_;
  std::uint64_t size_ = 0, used_ = 0;
};

}  // namespace lockstep::checkpoint
