#pragma once

#include <string_view>
#include <type_traits>
#include <utility>

#include "autograd/ops/descriptors.hpp"
#include "backend/backend.hpp"
#include "functional/op_list.hpp"
#include "lockstep/autograd/op_call.hpp"
#include "lockstep/tensor/factories.hpp"
#include "lockstep/tensor/tensor.hpp"
#include "runtime/step_recording.hpp"

/// @file
/// What most ops need: the backend of an operand, checks, broadcasting.

namespace lockstep::autograd {

/// The kernels that serve a tensor's device.
inline const backend::Backend& backend_of(const Tensor& tensor) {
  return backend::of(tensor.device());
}

/// True if gradients of biases are left to the kernels of norms' gradients, for a gradient of that
/// dtype and device.
inline bool norms_sum_biases(const Tensor& dy) {
  const auto choice = backend_of(dy).norms_sum_biases;
  return choice && size_of(dy.dtype()) == 2 && choice(dy.device().index);
}

/// The stream on which ops of a tensor's device run.
inline StreamRef stream_of(const Tensor& tensor) { return current_stream(tensor.device()); }

/// Whether an op may look at values, to refuse some: on the CPU, but not in a step that is
/// captured, where nothing runs; in the steps before that it has.
inline bool can_look_at(const Tensor& values) {
  return values.device().is_cpu() && !StepRecording::on(values.device());
}

/// @throws InvalidArgument unless both operands are on one device.
inline void check_same_device(std::string_view op, const Tensor& a, const Tensor& b) {
  LOCKSTEP_CHECK(a.device() == b.device(), InvalidArgument, op, ": operands are on ", a.device(),
                 " and ", b.device(), "; move one with to(device)");
}

/// @throws InvalidArgument unless both operands share dtype and device.
inline void check_alike(std::string_view op, const Tensor& a, const Tensor& b) {
  LOCKSTEP_CHECK(a.dtype() == b.dtype(), InvalidArgument, op, ": operands have dtypes ", a.dtype(),
                 " and ", b.dtype(), "; convert one with to(dtype)");
  check_same_device(op, a, b);
}

/// @throws InvalidArgument for a weight of a loss on another device than the input, or in f64 where
/// that is not: other dtypes mixed precision may convert.
inline void check_weight(std::string_view op, std::string_view what, const Tensor& weight,
                         const Tensor& input) {
  const bool is_wide = weight.dtype() == DType::f64 && input.dtype() != DType::f64;
  LOCKSTEP_CHECK(!is_wide && weight.device() == input.device(), InvalidArgument, op, ": ", what,
                 " is ", weight.dtype(), " on ", weight.device(), ", and the input ", input.dtype(),
                 " on ", input.device(), "; convert it with to()");
}

/// @throws InvalidArgument unless an index is i64 and on the device of what it indexes.
inline void check_index(std::string_view op, const Tensor& x, const Tensor& index) {
  check_same_device(op, x, index);
  LOCKSTEP_CHECK(index.dtype() == DType::i64, InvalidArgument, op, ": the index has dtype ",
                 index.dtype(), ", it must be i64");
}

/// @throws Unsupported for a dtype that the op does not take: for ops composed of others.
inline void check_operand(const OpDescriptor& op, const Tensor& x) {
  const Tensor* const operands[] = {&x};
  detail::check_operands(op, operands);
}

/// What an op along a dimension makes of a tensor without dimensions, which counts as a line of one
/// element. @param op takes the line; gives a tensor or a pair of them.
template <class Op>
auto of_one_element(const Tensor& x, Op&& op) {
  const auto results = op(x.reshape({1}));
  if constexpr (std::is_same_v<decltype(results), const Tensor>)
    return results.reshape({});
  else
    return std::pair(results.first.reshape({}), results.second.reshape({}));
}

/// The tensor's view, repeated over a larger shape.
inline ArrayView broadcast_view(const Tensor& tensor, const Shape& shape) {
  ArrayView view = tensor.view();
  if (view.shape == shape) return view;
  view.strides = broadcast_strides(view.shape, view.strides, shape);
  view.shape = shape;
  return view;
}

/// The view of a tensor that may be undefined: then an absent operand.
inline ArrayView view_or_absent(const Tensor& tensor) {
  return tensor.defined() ? tensor.view() : ArrayView{};
}

/// An image tensor with dense memory: as it is if row-major or channels-last, else packed.
inline Tensor dense_image(const Tensor& x) { return x.is_channels_last() ? x : x.contiguous(); }

/// The tensor in the memory order asked for.
inline Tensor ordered(const Tensor& x, bool channels_last) {
  return channels_last ? x.channels_last() : x.contiguous();
}

/// The dtype of statistics over data of a dtype: f64 for f64, else f32.
inline DType statistics_dtype(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

/// An op of ops.def that takes two tensors and no constants, recorded; shapes broadcast.
Tensor binary(BinaryOp op, const Tensor& a, const Tensor& b, const OpConstants& constants = {});

/// How kernels that sum in f32 write the gradient of operand `i`, which they computed with as
/// `used`: in the dtype in which it was given, where that is what they compute in or sum in.
inline TensorOptions gradient_options(const InputGradients& inputs, std::size_t i,
                                      const Tensor& used) {
  const DType given = inputs.operand_dtype(i);
  const bool held = given == DType::f32 && used.dtype() != DType::f64;
  return {held ? given : used.dtype(), used.device()};
}

/// Sums a gradient of a broadcast result down to an operand's shape.
Tensor sum_to(Tensor gradient, const Shape& shape);
/// The same into a tensor of the operand's shape, or added to what is there.
void sum_into(const Tensor& out, const Tensor& gradient, bool accumulate);
/// Hands over the gradient of operand `i`, which was broadcast, if it is wanted: summed straight
/// into what waits for it.
void write_sum_to(InputGradients& inputs, std::size_t i, const Tensor& gradient);

/// Notes an in-place change. @throws InvalidArgument if the tensor requires a gradient while
/// recording is on.
void begin_write(std::string_view op, const Tensor& tensor);

}  // namespace lockstep::autograd
