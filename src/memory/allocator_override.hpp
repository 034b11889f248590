#pragma once

#include <utility>

#include "lockstep/core/device.hpp"
#include "lockstep/memory/allocator.hpp"

/// @file
/// Threads that allocate from something else than a device's pool.

namespace lockstep::detail {

/// Serves what the calling thread allocates on a device from another allocator, until the end of
/// scope. Of nested ones the innermost counts, for all devices.
class AllocatorOverride {
  struct Choice {
    Device device;
    Allocator* allocator;
  };

 public:
  AllocatorOverride(Device device, Allocator& allocator) noexcept
      : previous_(std::exchange(current_, Choice{device, &allocator})) {}
  /// Serves from the devices' pools again.
  AllocatorOverride() noexcept : previous_(std::exchange(current_, Choice{cpu, nullptr})) {}
  AllocatorOverride(const AllocatorOverride&) = delete;
  AllocatorOverride& operator=(const AllocatorOverride&) = delete;
  ~AllocatorOverride() { current_ = previous_; }

  /// What the calling thread uses in the place of the device's pool, or null.
  static Allocator* of(Device device) noexcept {
    return current_.allocator && current_.device == device ? current_.allocator : nullptr;
  }

 private:
  Choice previous_;

  static inline constinit thread_local Choice current_{cpu, nullptr};
};

}  // namespace lockstep::detail
