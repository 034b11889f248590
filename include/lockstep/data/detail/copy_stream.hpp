#pragma once

#include "lockstep/data/batch_tensors.hpp"
#include "lockstep/runtime/event.hpp"
#include "lockstep/runtime/stream.hpp"

/// @file
/// Batches on their way to a GPU.

namespace lockstep::data {

/// Copies batches to a GPU beside what it computes. One thread may send a batch and another receive
/// it.
class CopyStream {
 public:
  /// @throws CudaError, Unsupported where there is no such device.
  explicit CopyStream(Device device) : stream_(device) {}

  /// Replaces the tensors of a batch by copies on the GPU, which come into being while the host
  /// goes on. @return the mark at which they are there. @throws OutOfMemory.
  template <class Batch>
  Event send(Batch& batch) const {
    wait_for_tensors_there(batch);
    const StreamGuard guard(stream_);
    const auto to_device = [&](Tensor& tensor) {
      if (tensor.defined()) tensor = tensor.to(stream_.ref().device, true);
    };
    visit_tensors(batch, to_device);
    Event sent(stream_.ref().device);
    sent.record(stream_);
    return sent;
  }

  /// Lets the calling thread's current stream use a batch from its mark on.
  template <class Batch>
  void receive(Batch& batch, const Event& sent) const {
    const StreamRef stream = current_stream(stream_.ref().device);
    sent.wait(stream);
    const auto use = [&](Tensor& tensor) {
      if (tensor.defined() && tensor.device() == stream.device) tensor.record_stream(stream);
    };
    visit_tensors(batch, use);
  }

 private:
  // A tensor that is on the GPU already was made by the calling thread, on its current stream. The
  // others do not wait for that stream, on which the whole training may be queued.
  template <class Batch>
  void wait_for_tensors_there(Batch& batch) const {
    const Device device = stream_.ref().device;
    bool is_there = false;
    const auto look = [&](Tensor& tensor) {
      is_there |= tensor.defined() && tensor.device() == device;
    };
    visit_tensors(batch, look);
    if (!is_there) return;
    Event made(device);
    made.record(current_stream(device));
    made.wait(stream_);
  }

  Stream stream_;
};

}  // namespace lockstep::data
