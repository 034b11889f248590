#pragma once

#include <cstddef>
#include <string>

#include "lockstep/core/device.hpp"
#include "lockstep/runtime/stream.hpp"

/// @file
/// The seam between lockstep and a device's driver. The pool, streams, events and copies are
/// written against it, so that a fake one can test their logic with no GPU.

namespace lockstep {

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

  virtual StreamRef create_stream(Device device, StreamPriority priority) = 0;
  virtual void destroy_stream(StreamRef stream) noexcept = 0;
  virtual void synchronize(StreamRef stream) = 0;

  virtual void* create_event(Device device, bool timing) = 0;
  virtual void destroy_event(Device device, void* event) noexcept = 0;
  virtual void record_event(void* event, StreamRef stream) = 0;
  virtual void wait_event(void* event, StreamRef stream) = 0;
  virtual bool query_event(void* event) = 0;
  virtual void synchronize_event(void* event) = 0;
  virtual float elapsed_ms(void* from, void* to) = 0;

  /// Copies bytes in stream order; either side may be host memory. Asynchronous only where the
  /// host side is pinned.
  virtual void copy(void* to, const void* from, std::size_t bytes, StreamRef stream) = 0;
  /// Sets bytes in stream order.
  virtual void fill_bytes(void* to, int value, std::size_t bytes, StreamRef stream) = 0;
};

/// The runtime of a kind of device. @throws Unsupported where this build has none.
DeviceRuntime& device_runtime(DeviceType type);

/// Number of usable CUDA devices: 0 in a build without CUDA or on a machine without a GPU.
int cuda_device_count();

}  // namespace lockstep
