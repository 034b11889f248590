#pragma once

#include <chrono>

#include "lockstep/runtime/event.hpp"

/// @file
/// The clock of a device, read on the host's.

namespace lockstep {

/// A moment that both clocks know: from it, and from the time that a device counts between two
/// marks, follows when a mark was reached.
class DeviceClock {
 public:
  /// Sets the clock: waits for a mark on a stream that is otherwise idle.
  explicit DeviceClock(Device device);

  /// When a mark with timing was reached. @throws CudaError if it was not yet.
  Event::HostTime time_of(const Event& mark) const;
  /// True once the clocks may have drifted apart, or the count be too long for a float.
  bool is_old() const;

 private:
  Event zero_;
  Event::HostTime zero_time_;
};

}  // namespace lockstep
