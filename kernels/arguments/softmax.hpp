#pragma once

#include "arguments/family.hpp"
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

}  // namespace lockstep::kernels

/// Softmax of one backend. Work runs in the order of the stream.
#define LOCKSTEP_SOFTMAX_KERNELS(KERNEL) \
  KERNEL(forward, SoftmaxArguments)      \
  KERNEL(backward, SoftmaxBackwardArguments)
LOCKSTEP_KERNEL_FAMILY(softmax, SoftmaxKernels, LOCKSTEP_SOFTMAX_KERNELS)
