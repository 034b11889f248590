#pragma once

#include <optional>

#include "lockstep/runtime/event.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Reading results of a GPU without making it wait.

namespace lockstep {

/// Values of a tensor on their way to the host. A training loop that reads its loss one step late
/// keeps the GPU busy: `HostCopy copy(loss)` in one step, `copy.item()` in the next.
class HostCopy {
 public:
  /// Starts to copy what the tensor holds at this point of the device's current stream, and returns
  /// at once. @param x any shape and dtype; may be changed afterwards. @throws OutOfMemory.
  explicit HostCopy(const Tensor& x);

  /// True once the values are there. Never blocks.
  bool is_ready() const { return !arrived_ || arrived_->query(); }
  /// The values, contiguous and on the CPU. Blocks until they are there.
  /// @throws what failed on the device meanwhile.
  const Tensor& wait() const;
  /// The only element as double. Blocks as `wait` does. @throws InvalidArgument unless there is
  /// one.
  double item() const { return wait().item(); }

 private:
  Tensor values_;
  std::optional<Event> arrived_;  // none on the CPU
};

}  // namespace lockstep
