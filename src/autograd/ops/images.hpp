#pragma once

#include <algorithm>
#include <limits>

#include "autograd/ops/common.hpp"
#include "lockstep/autograd/ops/spatial.hpp"

/// @file
/// What ops over images [N, C, H, W] share.

namespace lockstep::autograd {

/// No kernel, stride, padding or dilation is larger: sums of their products are numbers.
constexpr std::int64_t largest_extent = std::numeric_limits<std::int32_t>::max();

/// As kernels take it.
inline kernels::Pair pair(Size2d size) { return {size.height, size.width}; }

/// An image in the memory order asked for.
inline Tensor empty_image(const Shape& shape, TensorOptions options, bool channels_last) {
  return channels_last ? empty_strided(shape, channels_last_strides(shape), options)
                       : empty(shape, options);
}

/// An operand as dense memory, row-major or channels-last; not recorded.
template <std::size_t N>
Tensor image_of(const OpCall<N>& call, std::size_t i = 0) {
  return no_grad([&] { return dense_image(call[i]); });
}

/// @throws InvalidArgument unless x has four dimensions.
inline void check_image(std::string_view op, const Tensor& x) {
  LOCKSTEP_CHECK(x.dim() == 4, InvalidArgument, op, ": needs images [N, C, H, W], got shape ",
                 x.shape());
}

/// Sum of dy over all but the channels.
inline void bias_gradient(const Tensor& db, const Tensor& dy, bool accumulate) {
  ArrayView out = db.view();
  out.shape = {1, db.size(0), 1, 1};
  out.strides = {db.size(0), 1, 1, 1};
  backend_of(dy).reduction.reduce(
      {.op = ReduceOp::sum, .out = out, .in = dy.view(), .accumulate = accumulate}, stream_of(dy));
}

}  // namespace lockstep::autograd
