#include "lockstep/tensor/host_copy.hpp"

#include "backend/backend.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "lockstep/tensor/factories.hpp"
#include "runtime/step_recording.hpp"

namespace lockstep {

HostCopy::HostCopy(const Tensor& x) {
  const Device device = x.device();
  refuse_in_captured_step("HostCopy", "return the tensor, and copy it after the step", device);
  const StreamRef stream = current_stream(device);
  const Tensor packed = empty(x.shape(), x.options());
  backend::of(device).elementwise.copy({.out = packed.view(), .in = x.view()}, stream);
  if (device.is_cpu()) {
    values_ = packed;
    return;
  }
  values_ = empty_pinned(x.shape(), x.dtype());
  device_runtime(device.type).copy(values_.data_ptr(), packed.data_ptr(), packed.nbytes(), stream);
  values_.record_stream(stream);
  arrived_.emplace(device);
  arrived_->record(stream);
}

const Tensor& HostCopy::wait() const {
  if (arrived_) arrived_->synchronize();
  return values_;
}

}  // namespace lockstep
