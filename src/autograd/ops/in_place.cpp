#include "autograd/ops/common.hpp"
#include "autograd/ops/numbers.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "lockstep/runtime/event.hpp"
#include "tensor/fill.hpp"
#include "tensor/overlap.hpp"
#include "tensor/random_draw.hpp"

namespace lockstep {
namespace autograd {

void begin_write(std::string_view op, const Tensor& tensor) {
  LOCKSTEP_CHECK(
      !tensor.requires_grad() || !grad_enabled(), InvalidArgument, op,
      ": a tensor that requires a gradient cannot be changed in place while recording is "
      "on; use NoGradGuard, or the op that returns a new tensor");
  tensor.impl().storage->bump_version();
}

namespace {

void check_broadcasts_into(std::string_view op, const Tensor& to, const Tensor& from) {
  LOCKSTEP_CHECK(
      to.shape() == from.shape() || broadcast_shapes(to.shape(), from.shape()) == to.shape(),
      InvalidArgument, op, ": shape ", from.shape(), " does not fit into ", to.shape());
}

/// Kernels write elements in any order, and several at once.
void check_written_once(std::string_view op, const Tensor& to) {
  LOCKSTEP_CHECK(
      !has_repeated_elements(to.view()), InvalidArgument, op, ": several elements of ", to.shape(),
      " lie at one place (strides ", to.strides(),
      ", as expand() makes them); change the tensor before it is expanded, or a clone()");
}

/// @param from seen in the shape of `to`.
void check_not_overwritten(std::string_view op, const Tensor& to, const ArrayView& from) {
  LOCKSTEP_CHECK(!is_overwritten(from, to.view()), InvalidArgument, op,
                 ": the operand shares memory with the tensor that is changed, and elements would "
                 "be overwritten before they are read; clone() the operand first");
}

/// In-place ops are not recorded: a gradient must not get lost silently.
void check_no_gradient(std::string_view op, const Tensor& other) {
  LOCKSTEP_CHECK(!recording(other), InvalidArgument, op,
                 ": the operand requires a gradient, but in-place ops are not recorded; detach() "
                 "it, use NoGradGuard, or the op that returns a new tensor");
}

void in_place(BinaryOp op, std::string_view name, const Tensor& self, const Tensor& other,
              double alpha) {
  check_alike(name, self, other);
  check_broadcasts_into(name, self, other);
  check_no_gradient(name, other);
  check_written_once(name, self);
  const ArrayView operand = broadcast_view(other, self.shape());
  check_not_overwritten(name, self, operand);
  begin_write(name, self);
  backend_of(self).elementwise.binary(
      {.op = op, .out = self.view(), .a = self.view(), .b = operand, .constants = {.alpha = alpha}},
      stream_of(self));
}

/// this = op(this).
void in_place(UnaryOp op, std::string_view name, const Tensor& self, OpConstants constants) {
  LOCKSTEP_CHECK(self.dtype() != DType::boolean, Unsupported, name,
                 ": dtype bool has no arithmetic; convert with to(dtype)");
  check_written_once(name, self);
  begin_write(name, self);
  backend_of(self).elementwise.unary(
      {.op = op, .y = self.view(), .x = self.view(), .constants = constants}, stream_of(self));
}

void check_quotient(const Tensor& self) {
  LOCKSTEP_CHECK(is_floating(self.dtype()), Unsupported, "div_: quotients of dtype ", self.dtype(),
                 " are floating; use the result of x / y, or of div() with a RoundingMode");
}

/// this = what `draw` writes into an array of its shape.
template <class Draw>
void redraw(std::string_view name, Tensor& self, const Draw& draw) {
  begin_write(name, self);
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
  copy_bytes(to, from, target);
  order(target, source);
}

/// To or from the host, in the order of the GPU's stream.
void copy_with_host(const Tensor& to, const Tensor& from, bool non_blocking) {
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
  in_place(BinaryOp::add, "add_", *this, other, alpha);
  return *this;
}

Tensor& Tensor::add_(Scalar value) {
  value = wrapped("add_", dtype(), value);
  if (exceeds_constants(dtype(), value)) return add_(scalar(value, options()));
  in_place(UnaryOp::affine, "add_", *this, {.alpha = 1.0, .beta = value.to_double()});
  return *this;
}

Tensor& Tensor::sub_(const Tensor& other, double alpha) {
  in_place(BinaryOp::sub, "sub_", *this, other, alpha);
  return *this;
}

Tensor& Tensor::sub_(Scalar value) {
  value = wrapped("sub_", dtype(), value);
  if (exceeds_constants(dtype(), value)) return sub_(scalar(value, options()));
  in_place(UnaryOp::affine, "sub_", *this, {.alpha = 1.0, .beta = negative(dtype(), value)});
  return *this;
}

Tensor& Tensor::mul_(const Tensor& other) {
  in_place(BinaryOp::mul, "mul_", *this, other, 1.0);
  return *this;
}

Tensor& Tensor::mul_(Scalar value) {
  value = wrapped("mul_", dtype(), value);
  if (exceeds_constants(dtype(), value)) return mul_(scalar(value, options()));
  // Adding -0.0 changes nothing; +0.0 would turn -0.0 into +0.0.
  in_place(UnaryOp::affine, "mul_", *this, {.alpha = value.to_double(), .beta = -0.0});
  return *this;
}

Tensor& Tensor::div_(const Tensor& other) {
  check_quotient(*this);
  in_place(BinaryOp::div, "div_", *this, other, 1.0);
  return *this;
}

Tensor& Tensor::div_(Scalar value) {
  check_quotient(*this);
  in_place(UnaryOp::div_scalar, "div_", *this, {.alpha = value.to_double()});
  return *this;
}

Tensor& Tensor::masked_fill_(const Tensor& mask, Scalar value) {
  check_holds("masked_fill_", dtype(), value);
  check_same_device("masked_fill_", *this, mask);
  LOCKSTEP_CHECK(mask.dtype() == DType::boolean, InvalidArgument,
                 "masked_fill_: the mask has dtype ", mask.dtype(), ", it must be bool");
  check_broadcasts_into("masked_fill_", *this, mask);
  check_written_once("masked_fill_", *this);
  check_not_overwritten("masked_fill_", *this, broadcast_view(mask, shape()));
  begin_write("masked_fill_", *this);
  const Tensor filling = scalar(value, options());
  backend_of(*this).elementwise.where({.out = view(),
                                       .condition = broadcast_view(mask, shape()),
                                       .a = broadcast_view(filling, shape()),
                                       .b = view()},
                                      stream_of(*this));
  return *this;
}

Tensor& Tensor::uniform_(double low, double high) {
  LOCKSTEP_CHECK(low <= high, InvalidArgument, "uniform_: low ", low, " is above high ", high);
  redraw("uniform_", *this,
         [&](const ArrayView& to, kernels::RandomPlace random, StreamRef stream) {
           backend_of(*this).random.uniform({.out = to, .low = low, .high = high, .random = random},
                                            stream);
         });
  return *this;
}

Tensor& Tensor::normal_(double mean, double deviation) {
  redraw("normal_", *this, [&](const ArrayView& to, kernels::RandomPlace random, StreamRef stream) {
    backend_of(*this).random.normal(
        {.out = to, .mean = mean, .deviation = deviation, .random = random}, stream);
  });
  return *this;
}

Tensor& Tensor::fill_(Scalar value) {
  check_holds("fill_", dtype(), value);
  begin_write("fill_", *this);
  fill_view(*this, value);
  return *this;
}

Tensor& Tensor::copy_(const Tensor& other, bool non_blocking) {
  check_broadcasts_into("copy_", *this, other);
  check_no_gradient("copy_", other);
  check_written_once("copy_", *this);
  if (device() == other.device()) {
    const ArrayView operand = broadcast_view(other, shape());
    check_not_overwritten("copy_", *this, operand);
    begin_write("copy_", *this);
    backend_of(*this).elementwise.copy({.out = view(), .in = operand}, stream_of(*this));
    return *this;
  }
  begin_write("copy_", *this);
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
