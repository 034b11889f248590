#include "autograd/ops/common.hpp"
#include "autograd/ops/in_place_call.hpp"
#include "autograd/ops/numbers.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "lockstep/runtime/event.hpp"
#include "runtime/runtimes.hpp"
#include "runtime/step_recording.hpp"
#include "tensor/fill.hpp"
#include "tensor/random_draw.hpp"

namespace lockstep {

LOCKSTEP_OP(add_, numeric, follow, same)
LOCKSTEP_OP(copy_, any, follow, own)
LOCKSTEP_OP(div_, floating, follow, same)
LOCKSTEP_OP(fill_, any, follow, same)
LOCKSTEP_OP(masked_fill_, any, follow, own)
LOCKSTEP_OP(mul_, numeric, follow, same)
LOCKSTEP_OP(normal_, floating, follow, same)
LOCKSTEP_OP(sub_, numeric, follow, same)
LOCKSTEP_OP(uniform_, floating, follow, same)

namespace autograd {

namespace {

/// self = op(self, other).
void in_place(BinaryOp op, const OpDescriptor& descriptor, const Tensor& self, const Tensor& other,
              double alpha) {
  const InPlaceCall call(descriptor, self);
  const ArrayView operand = call.operand(other);
  const ArrayView out = call.write();
  backend_of(self).elementwise.binary(
      {.op = op, .out = out, .a = out, .b = operand, .constants = {.alpha = alpha}},
      stream_of(self));
}

/// self = op(self).
void in_place(UnaryOp op, const OpDescriptor& descriptor, const Tensor& self,
              OpConstants constants) {
  const InPlaceCall call(descriptor, self);
  call.check_written_once();
  const ArrayView y = call.write();
  backend_of(self).elementwise.unary({.op = op, .y = y, .x = y, .constants = constants},
                                     stream_of(self));
}

void check_quotient(const Tensor& self) {
  LOCKSTEP_CHECK(is_floating(self.dtype()), Unsupported, ops::div_.name, ": quotients of dtype ",
                 self.dtype(), " on device ", self.device(),
                 " are floating; use the result of x / y, or of div() with a RoundingMode");
}

/// self = what `draw` writes into an array of its shape.
template <class Draw>
void redraw(const OpDescriptor& descriptor, Tensor& self, const Draw& draw) {
  const InPlaceCall call(descriptor, self);
  call.check_written_once();
  call.write();
  const Tensor drawn = empty(self.shape(), self.options());
  const RandomDraw place(default_generator(), stream_of(drawn));
  draw(drawn.view(), place.place(), stream_of(drawn));
  no_grad([&] { self.copy_(drawn); });
}

void copy_bytes(const Tensor& to, const Tensor& from, StreamRef stream) {
  device_runtime(stream.device.type).copy(to.data_ptr(), from.data_ptr(), to.nbytes(), stream);
}

/// Lets what comes on `later` wait for what is on `earlier` now.
void order(StreamRef earlier, StreamRef later) {
  Event mark(earlier.device);
  mark.record(earlier);
  mark.wait(later);
}

/// Between two GPUs, in the order of the current streams of both; the host goes on.
void copy_between_gpus(const Tensor& to, const Tensor& from) {
  const StreamRef source = current_stream(from.device()), target = current_stream(to.device());
  order(source, target);
  lockstep::copy_between_gpus(to.data_ptr(), from.data_ptr(), from.device(), to.nbytes(), target);
  order(target, source);
}

/// To or from the host, in the order of the GPU's stream.
void copy_with_host(const Tensor& to, const Tensor& from, bool non_blocking) {
  refuse_in_captured_step("a copy between the host and a device",
                          "give the step what it needs as inputs on the device");
  const Tensor& on_host = to.device().is_cpu() ? to : from;
  const StreamRef stream = current_stream(to.device().is_cpu() ? from.device() : to.device());
  if (non_blocking && !on_host.is_pinned() && from.device().is_cpu())
    return copy_with_host(to, from.pin_memory(), true);
  copy_bytes(to, from, stream);
  if (non_blocking && on_host.is_pinned())
    on_host.record_stream(stream);
  else
    synchronize(stream);  // the host side may be used as soon as the call returns
}

/// Bytes between devices; both sides contiguous, same dtype.
void copy_across(const Tensor& to, const Tensor& from, bool non_blocking) {
  if (to.device().is_cuda() && from.device().is_cuda())
    copy_between_gpus(to, from);
  else
    copy_with_host(to, from, non_blocking);
}

}  // namespace
}  // namespace autograd

using namespace autograd;

Tensor& Tensor::add_(const Tensor& other, double alpha) {
  in_place(BinaryOp::add, ops::add_, *this, other, alpha);
  return *this;
}

Tensor& Tensor::add_(Scalar value) {
  value = wrapped(ops::add_.name, dtype(), value);
  if (exceeds_constants(dtype(), value)) return add_(scalar(value, options()));
  in_place(UnaryOp::affine, ops::add_, *this, {.alpha = 1.0, .beta = value.to_double()});
  return *this;
}

Tensor& Tensor::sub_(const Tensor& other, double alpha) {
  in_place(BinaryOp::sub, ops::sub_, *this, other, alpha);
  return *this;
}

Tensor& Tensor::sub_(Scalar value) {
  value = wrapped(ops::sub_.name, dtype(), value);
  if (exceeds_constants(dtype(), value)) return sub_(scalar(value, options()));
  in_place(UnaryOp::affine, ops::sub_, *this, {.alpha = 1.0, .beta = negative(dtype(), value)});
  return *this;
}

Tensor& Tensor::mul_(const Tensor& other) {
  in_place(BinaryOp::mul, ops::mul_, *this, other, 1.0);
  return *this;
}

Tensor& Tensor::mul_(Scalar value) {
  value = wrapped(ops::mul_.name, dtype(), value);
  if (exceeds_constants(dtype(), value)) return mul_(scalar(value, options()));
  // Adding -0.0 changes nothing; +0.0 would turn -0.0 into +0.0.
  in_place(UnaryOp::affine, ops::mul_, *this, {.alpha = value.to_double(), .beta = -0.0});
  return *this;
}

Tensor& Tensor::div_(const Tensor& other) {
  check_quotient(*this);
  in_place(BinaryOp::div, ops::div_, *this, other, 1.0);
  return *this;
}

Tensor& Tensor::div_(Scalar value) {
  check_quotient(*this);
  in_place(UnaryOp::div_scalar, ops::div_, *this, {.alpha = value.to_double()});
  return *this;
}

Tensor& Tensor::masked_fill_(const Tensor& mask, Scalar value) {
  const InPlaceCall call(ops::masked_fill_, *this);
  check_holds(call.name(), dtype(), value);
  LOCKSTEP_CHECK(mask.dtype() == DType::boolean, InvalidArgument, call.name(),
                 ": the mask has dtype ", mask.dtype(), ", it must be bool");
  const ArrayView condition = call.operand(mask);
  const ArrayView out = call.write();
  const Tensor filling = scalar(value, options());
  backend_of(*this).elementwise.where(
      {.out = out, .condition = condition, .a = broadcast_view(filling, shape()), .b = out},
      stream_of(*this));
  return *this;
}

Tensor& Tensor::uniform_(double low, double high) {
  LOCKSTEP_CHECK(low <= high, InvalidArgument, ops::uniform_.name, ": low ", low, " is above high ",
                 high);
  redraw(ops::uniform_, *this,
         [&](const ArrayView& to, kernels::RandomPlace random, StreamRef stream) {
           backend_of(*this).random.uniform({.out = to, .low = low, .high = high, .random = random},
                                            stream);
         });
  return *this;
}

Tensor& Tensor::normal_(double mean, double deviation) {
  redraw(ops::normal_, *this,
         [&](const ArrayView& to, kernels::RandomPlace random, StreamRef stream) {
           backend_of(*this).random.normal(
               {.out = to, .mean = mean, .deviation = deviation, .random = random}, stream);
         });
  return *this;
}

Tensor& Tensor::fill_(Scalar value) {
  const InPlaceCall call(ops::fill_, *this);
  check_holds(call.name(), dtype(), value);
  call.write();
  fill_view(*this, value);
  return *this;
}

Tensor& Tensor::copy_(const Tensor& other, bool non_blocking) {
  const InPlaceCall call(ops::copy_, *this);
  if (device() == other.device()) {
    const ArrayView operand = call.operand(other);
    backend_of(*this).elementwise.copy({.out = call.write(), .in = operand}, stream_of(*this));
    return *this;
  }
  call.check_fits(other);
  call.check_written_once();
  call.write();
  // Convert and pack where the data is, move the bytes, then unpack where they arrive.
  const NoGradGuard no_recording;
  const Tensor packed = other.detach().to(dtype()).expand(shape()).contiguous();
  if (is_contiguous()) {
    copy_across(*this, packed, non_blocking);
    return *this;
  }
  // On the host it is unpacked at once, so the bytes must be there.
  const Tensor landed = empty(shape(), options());
  copy_across(landed, packed, non_blocking);
  backend_of(*this).elementwise.copy({.out = view(), .in = landed.view()}, stream_of(*this));
  return *this;
}

}  // namespace lockstep
