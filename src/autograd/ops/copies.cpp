#include "autograd/ops/common.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep {

LOCKSTEP_OP(channels_last, any, follow, same)
LOCKSTEP_OP(clone, any, follow, same)
LOCKSTEP_OP(to, any, follow, same)

namespace {

using namespace autograd;

/// Records a copy of the operand, in whatever memory order or dtype: its gradient passes through.
Tensor recorded_copy(const OpCall<1>& call, const Tensor& y) {
  if (!call.recording()) return y;
  return call.record(
      y, Differentiable{[](const Tensor& dy, InputGradients& inputs) { inputs.set(0, dy); }});
}

}  // namespace

Tensor Tensor::clone() const {
  const OpCall call(ops::clone, *this);
  Tensor y = empty(shape(), options());
  backend_of(*this).elementwise.copy({.out = y.view(), .in = view()}, stream_of(*this));
  return recorded_copy(call, y);
}

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(); }

Tensor Tensor::channels_last() const {
  if (is_channels_last()) return *this;
  const OpCall call(ops::channels_last, *this);
  Tensor y = empty_strided(shape(), channels_last_strides(shape()), options());
  backend_of(*this).elementwise.copy({.out = y.view(), .in = view()}, stream_of(*this));
  return recorded_copy(call, y);
}

Tensor Tensor::to(DType wanted) const {
  if (wanted == dtype()) return *this;
  const OpCall call(ops::to, *this);
  Tensor y = is_channels_last() ? empty_strided(shape(), strides(), {wanted, device()})
                                : empty(shape(), {wanted, device()});
  backend_of(*this).elementwise.copy({.out = y.view(), .in = view()}, stream_of(*this));
  return is_floating(wanted) ? recorded_copy(call, y) : y;
}

Tensor Tensor::to(Device wanted, bool non_blocking) const {
  if (wanted == device()) return *this;
  const OpCall call(ops::to, *this);
  Tensor y = wanted.is_cpu() && non_blocking ? empty_pinned(shape(), dtype())
                                             : empty(shape(), {dtype(), wanted});
  no_grad([&] { y.copy_(*this, non_blocking); });
  if (!call.recording()) return y;
  return call.record(y, Differentiable{[from = device()](const Tensor& dy, InputGradients& inputs) {
                       inputs.set(0, dy.to(from));
                     }});
}

Tensor Tensor::pin_memory() const {
  LOCKSTEP_CHECK(device().is_cpu(), InvalidArgument, "pin_memory: the tensor is on ", device(),
                 "; only memory of the host can be pinned");
  if (is_pinned()) return *this;
  Tensor y = empty_pinned(shape(), dtype());
  backend_of(*this).elementwise.copy({.out = y.view(), .in = view()}, stream_of(*this));
  return y;
}

}  // namespace lockstep
