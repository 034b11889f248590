#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/core/device.hpp"
#include "lockstep/runtime/stream.hpp"

/// @file
/// The seam between lockstep and a device's driver. The pool, streams, events and copies are
/// written against it, so that a fake one can test their logic with no GPU.

namespace lockstep {

/// Numbers that a stream has for its kernels.
inline constexpr std::size_t stream_counters = 1024;

/// What lockstep asks of a kind of device. All functions may be called from any thread; failures
/// throw the device library's error.
class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;

  /// Number of usable devices; 0 without a driver.
  virtual int device_count() = 0;
  /// Human-readable name of a device.
  virtual std::string device_name(int index) = 0;
  /// Free and total bytes of a device's memory.
  virtual std::pair<std::size_t, std::size_t> memory_info(int index) = 0;

  /// The stream on which the device computes unless a StreamGuard says otherwise: one for the
  /// process, which does not synchronise with the driver's legacy default stream.
  virtual StreamRef default_stream(Device device) = 0;
  /// A stream of the device for the caller alone, who destroys it. It may be one that was destroyed
  /// before, behind the work that is still queued there.
  virtual StreamRef create_stream(Device device, StreamPriority priority) = 0;
  /// Destroys a stream that `create_stream` gave; work already queued still runs.
  virtual void destroy_stream(StreamRef stream) noexcept = 0;
  /// Blocks the host until all work queued on the stream is done.
  virtual void synchronize(StreamRef stream) = 0;
  /// `stream_counters` numbers on the device for the kernels of a stream that `create_stream` or
  /// `default_stream` gave. They are 0 whenever a kernel begins: one that counts in them sets them
  /// back. Null for other streams, and while one is captured other than by the step that runs on
  /// it.
  virtual std::uint32_t* counters(StreamRef /*stream*/) { return nullptr; }

  /// An event of the device for the caller alone, who destroys it; only one made with `timing` can
  /// be asked for elapsed time. It may be one that was destroyed before: until it is recorded, what
  /// it marks is undefined.
  virtual void* create_event(Device device, bool timing) = 0;
  /// Destroys an event that `create_event` gave; waits already queued on it stay valid.
  virtual void destroy_event(Device device, void* event) noexcept = 0;
  /// Marks the present end of the stream.
  virtual void record_event(void* event, StreamRef stream) = 0;
  /// Makes later work of the stream wait for the event's last record. Does not block the host.
  virtual void wait_event(void* event, StreamRef stream) = 0;
  /// True once the work before the event's last record is done.
  virtual bool query_event(void* event) = 0;
  /// Blocks the host until the event's last record is done.
  virtual void synchronize_event(void* event) = 0;
  /// Milliseconds between two recorded timing events.
  virtual float elapsed_ms(void* from, void* to) = 0;

  /// From now on the work that the calling thread queues on the stream, and on those that come to
  /// wait for it, becomes a graph instead of running. @throws Unsupported where there are none.
  virtual void begin_capture(StreamRef stream);
  /// Ends that. @return the graph, ready to be launched, for the caller to destroy.
  /// @throws the library's error, with which the capture has ended too.
  virtual void* end_capture(StreamRef stream);
  /// Queues the work of a graph.
  virtual void launch_graph(void* graph, StreamRef stream);
  /// Destroys a graph; launches already queued still run.
  virtual void destroy_graph(Device /*device*/, void* /*graph*/) noexcept {}

  /// Gives back to the driver what is kept for reuse and idle: events.
  virtual void release_cached() {}

  /// Copies bytes in stream order; either side may be host memory. Asynchronous only where the
  /// host side is pinned.
  virtual void copy(void* to, const void* from, std::size_t bytes, StreamRef stream) = 0;
  /// Pins host memory from elsewhere, which begins and ends at pages and stays allocated until
  /// `unpin`: copies there are asynchronous for all devices then, each within what one call pinned.
  /// @param device one that the program uses. @return whether that is so; false where the system
  /// does not allow it.
  virtual bool pin(Device /*device*/, void* /*memory*/, std::size_t /*bytes*/) { return false; }
  /// Ends that, when all copies there are done. @param memory as it was pinned. @return false if it
  /// stays pinned: then nothing else may come to lie there.
  virtual bool unpin(Device /*device*/, void* /*memory*/) noexcept { return true; }
  /// Sets bytes in stream order.
  virtual void fill_bytes(void* to, int value, std::size_t bytes, StreamRef stream) = 0;
};

/// The runtime of a kind of device. @throws Unsupported where this build has none.
DeviceRuntime& device_runtime(DeviceType type);

}  // namespace lockstep
