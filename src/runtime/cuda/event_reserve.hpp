#pragma once

#include <array>
#include <mutex>
#include <vector>

#include <cuda_runtime_api.h>

/// @file
/// Events kept for reuse.

namespace lockstep {

/// An event of the driver's, with what it takes to use it again.
struct ReservedEvent {
  cudaEvent_t event = nullptr;
  int device = 0;
  bool timing = false;
  ReservedEvent* next = nullptr;  ///< in the reserve
};

/// Keeps events for reuse: every collective and every block of memory that several streams share
/// needs some, and the driver takes microseconds to make one. An event may be released while
/// streams still wait for its mark: they wait for the record that there was when they were told to.
/// Any thread may call it.
class EventReserve {
 public:
  /// An event whose mark, if it has one, is its former user's. @throws CudaError where the driver
  /// refuses one.
  ReservedEvent* acquire(int device, bool timing);
  void release(ReservedEvent* event) noexcept;
  /// Destroys the events that are in the reserve.
  void clear() noexcept;

 private:
  std::mutex mutex_;
  std::vector<std::array<ReservedEvent*, 2>> idle_;  // of each device: without timing, and with
};

}  // namespace lockstep
