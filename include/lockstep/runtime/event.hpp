#pragma once

#include <chrono>
#include <utility>

#include "lockstep/runtime/stream.hpp"

/// @file
/// Events: marks in a stream that other streams and the host can wait for.

namespace lockstep {

/// A mark in a stream. Unrecorded events count as reached. Cheap to make: on a GPU, events come
/// from a reserve of the device's.
class Event {
 public:
  /// A moment on the host's clock.
  using HostTime = std::chrono::steady_clock::time_point;

  /// Creates an event for streams of one device. With `timing`, `elapsed_ms` works.
  explicit Event(Device device, bool timing = false);
  Event(Event&& other) noexcept
      : device_(other.device_),
        recorded_(other.recorded_),
        handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(recorded_, other.recorded_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Event();

  /// Marks the stream's present end. Recording again moves the mark.
  void record(StreamRef stream);
  /// Makes later work on `stream` wait until the mark is reached; the host goes on.
  void wait(StreamRef stream) const;
  /// True once all work before the mark is done.
  bool query() const;
  /// Blocks the host until the mark is reached.
  void synchronize() const;
  /// Milliseconds between two recorded timing events. @throws InvalidArgument if either was never
  /// recorded, CudaError if it is not reached.
  float elapsed_ms(const Event& later) const;
  /// When the mark of a timing event was reached, to some microseconds. @throws as `elapsed_ms`.
  HostTime reached_at() const;

 private:
  Device device_;
  bool recorded_ = false;
  void* handle_ = nullptr;
};

}  // namespace lockstep
