#pragma once

#include <cstddef>
#include <cstdint>

/// @file
/// Memory for what is noted during one launch.

namespace simgpu {

/// Words that are handed out one range after the other, all released at once. They keep what was
/// in them. Only pages that are touched cost memory.
class ShadowArena {
 public:
  ShadowArena();
  ShadowArena(const ShadowArena&) = delete;
  ShadowArena& operator=(const ShadowArena&) = delete;
  ~ShadowArena();

  /// @return null where so many are not left.
  std::uint64_t* take(std::size_t count);
  /// Releases all ranges, and gives much of it to the system.
  void release();
  /// All words are 0 from now on.
  void clear();

 private:
  void drop_from(std::size_t word);

  std::uint64_t* words_;
  std::size_t taken_ = 0;
};

}  // namespace simgpu
