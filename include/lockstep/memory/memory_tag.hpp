#pragma once

#include <string_view>
#include <utility>

/// @file
/// Names for the memory that a part of a program allocates.

namespace lockstep {

namespace detail {
inline constinit thread_local std::string_view memory_tag{};
}

/// Names what the calling thread allocates until the end of scope ("optimizer", "augmentation"), in
/// histories, snapshots and out-of-memory errors. The module that runs and the op are named without
/// it. Of nested ones the innermost counts.
class MemoryTag {
 public:
  /// @param name must outlive the scope.
  explicit MemoryTag(std::string_view name) noexcept
      : previous_(std::exchange(detail::memory_tag, name)) {}
  MemoryTag(const MemoryTag&) = delete;
  MemoryTag& operator=(const MemoryTag&) = delete;
  ~MemoryTag() { detail::memory_tag = previous_; }

 private:
  std::string_view previous_;
};

}  // namespace lockstep
