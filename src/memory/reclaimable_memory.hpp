#pragma once

#include <functional>

#include "lockstep/core/device.hpp"

/// @file
/// Memory that a part of the library has for a while, and that training may come to need meanwhile.

namespace lockstep {

/// As long as this lives, whoever finds no memory on the device has it given back before he fails.
class ReclaimableMemory {
 public:
  /// @param give_back returns once the memory is the pool's again; called on any thread, several
  /// times at once, and must not make or end a ReclaimableMemory, nor wait for a thread that does.
  ReclaimableMemory(Device device, std::function<void()> give_back);
  ReclaimableMemory(const ReclaimableMemory&) = delete;
  ReclaimableMemory& operator=(const ReclaimableMemory&) = delete;
  /// Waits for calls.
  ~ReclaimableMemory();

  /// Has all memory of the device given back. @return false if there is none.
  static bool reclaim(Device device);

 private:
  const Device device_;
  const std::function<void()> give_back_;
};

}  // namespace lockstep
