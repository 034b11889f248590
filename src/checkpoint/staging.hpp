#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

/// @file
/// Memory in which a rank's part of a checkpoint waits to be written.

namespace lockstep::checkpoint {

/// Alignment at which files are written past the page cache.
inline constexpr std::uint64_t page_bytes = 4096;

/// One block of memory, kept from save to save, out of which runs of bytes are given that lie to
/// pages as they will in their file.
class Staging {
 public:
  /// Gives all back, and has room for so many bytes in so many runs. @throws OutOfMemory.
  void reserve(std::uint64_t bytes, std::size_t runs);
  /// Has the system provide all of the memory, which it else does page by page when it is written.
  /// @param stops ends it before.
  void touch(const std::atomic<bool>& stops) noexcept;
  /// The next run. @param offset of its first byte in its file.
  std::span<std::byte> take(std::uint64_t bytes, std::uint64_t offset);

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept;
  };
  std::unique_ptr<std::byte[], Free> memory_;
  std::uint64_t size_ = 0, used_ = 0;
};

}  // namespace lockstep::checkpoint
