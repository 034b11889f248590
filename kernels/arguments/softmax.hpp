#pragma once

#include "arguments/kernel.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Softmax over the rows (last dimension) of contiguous arrays.

namespace lockstep::kernels {

/// y = softmax(x).
struct SoftmaxArguments {
  ArrayView y = {}, x = {};
  bool log = false;  ///< y = log(softmax(x))
};

/// dx from dy and the result y.
struct SoftmaxBackwardArguments {
  ArrayView dx = {}, dy = {}, y = {};
  bool log = false;
};

/// Softmax of one backend. Work runs in the order of the stream.
struct SoftmaxKernels {
  Kernel<SoftmaxArguments> forward = {};
  Kernel<SoftmaxBackwardArguments> backward = {};
};

}  // namespace lockstep::kernels
