#pragma once

#include <cstddef>

#include "lockstep/memory/allocator.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep::comm {

/// A small piece of a communicator's memory through which host values pass.
class ValueStaging {
 public:
  ValueStaging(Device device, std::size_t bytes)
      : stream_(not_captured(device)), block_(device_allocator(device).allocate(bytes, stream_)) {}
  ValueStaging(const ValueStaging&) = delete;
  ValueStaging& operator=(const ValueStaging&) = delete;
  ~ValueStaging() { device_allocator(stream_.device).deallocate(block_); }

  /// Where the values lie; null for zero bytes.
  void* data() const { return block_ ? block_->data : nullptr; }

  /// Copies host values in, to `to` or the beginning.
  void upload(const void* values, std::size_t bytes, void* to = nullptr) {
    if (bytes > 0) runtime().copy(to ? to : data(), values, bytes, stream_);
  }
  /// Copies values out and waits for them.
  void download(void* values, std::size_t bytes) {
    if (bytes == 0) return;
    runtime().copy(values, data(), bytes, stream_);
    lockstep::synchronize(stream_);
  }

 private:
  static StreamRef not_captured(Device device) {
    refuse_in_captured_step("values of the host go to other ranks",
                            "exchange them before the step");
    return current_stream(device);
  }
  DeviceRuntime& runtime() const { return device_runtime(stream_.device.type); }

  StreamRef stream_;
  MemoryBlock* block_;
};

}  // namespace lockstep::comm
