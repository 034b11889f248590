#pragma once

#include <cstddef>
#include <cstdint>

/// @file
/// The dynamic shared memory of the block that runs.

namespace simgpu {

/// One buffer for all blocks, with a margin after it, so that an index past the end meets neither
/// other data nor the end of a mapping.
class DynamicMemory {
 public:
  static constexpr std::size_t most_bytes = 228 * 1024;
  static constexpr std::size_t margin_bytes = 64 * 1024;

  DynamicMemory();
  DynamicMemory(const DynamicMemory&) = delete;
  DynamicMemory& operator=(const DynamicMemory&) = delete;
  ~DynamicMemory();

  /// Makes the first `bytes` the block's own; they hold NaNs.
  void start_block(std::size_t bytes);
  std::byte* data() { return data_; }
  std::uintptr_t begin() const { return reinterpret_cast<std::uintptr_t>(data_); }
  std::size_t bytes() const { return bytes_; }
  bool holds(std::uintptr_t address) const { return address - begin() < bytes_; }
  /// True for the margins.
  bool is_outside(std::uintptr_t address) const {
    const std::uintptr_t offset = address - begin() + margin_bytes;
    return offset < most_bytes + 2 * margin_bytes && address - begin() >= bytes_;
  }

 private:
  std::byte* data_;
  std::size_t bytes_ = 0;
};

}  // namespace simgpu
