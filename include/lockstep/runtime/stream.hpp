#pragma once

#include <utility>

#include "lockstep/core/device.hpp"

/// @file
/// Streams: queues of work on a device. On the CPU there is one, and it runs at once.

namespace lockstep {

/// Priority of a stream: collectives run on high-priority ones.
enum class StreamPriority : signed char { normal, high };

/// Non-owning handle of a stream. On a GPU the null handle is the driver's legacy default stream,
/// which lockstep never uses unless a StreamGuard asks for it.
struct StreamRef {
  Device device;
  void* handle = nullptr;
  friend bool operator==(const StreamRef&, const StreamRef&) = default;
};

/// Owns a stream of its own, which synchronises with no other unless events say so.
class Stream {
 public:
  /// Creates a stream on a device. @throws CudaError where the driver refuses.
  explicit Stream(Device device, StreamPriority priority = StreamPriority::normal);
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, {})) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~Stream();

  /// The non-owning handle.
  StreamRef ref() const noexcept { return stream_; }
  /// The non-owning handle.
  operator StreamRef() const noexcept { return stream_; }
  /// Blocks the host until all work queued so far is done.
  void synchronize() const;

 private:
  StreamRef stream_;
};

/// The stream on which a device computes where no StreamGuard says otherwise: one for all threads,
/// so that one may use at once what another made. It does not synchronise with the driver's legacy
/// default stream: code of one's own that is to follow lockstep's work belongs on `current_stream`.
StreamRef default_stream(Device device);

/// The stream on which ops of the calling thread run for that device.
StreamRef current_stream(Device device);

/// Makes a stream current for the calling thread and restores the former one at the end of scope.
class StreamGuard {
 public:
  /// @param stream becomes current for its own device; other devices keep theirs. A null handle
  /// stands for the driver's legacy default stream, for work among code that uses that.
  explicit StreamGuard(StreamRef stream);
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;
  ~StreamGuard();

 private:
  StreamRef previous_;
  bool was_chosen_ = false;
};

/// Blocks the host until all work queued on the stream is done.
void synchronize(StreamRef stream);

}  // namespace lockstep
