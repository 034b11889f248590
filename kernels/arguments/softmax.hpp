#pragma once

#include "arguments/family.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Softmax over the rows (last dimension) of contiguous arrays, on a CPU over any dimension of
/// them.

namespace lockstep::kernels {

/// y = softmax(x).
struct SoftmaxArguments {
  ArrayView y = {}, x = {};
  bool log = false;  ///< y = log(softmax(x))
  int dim = -1;      ///< a CPU's alone may be another than the last, counted from the first
};

/// dx from dy and the result y.
struct SoftmaxBackwardArguments {
  ArrayView dx = {}, dy = {}, y = {};
  bool log = false;
  int dim = -1;  ///< as in forward
};

}  // namespace lockstep::kernels

/// Softmax of one backend. Work runs in the order of the stream.
#define LOCKSTEP_SOFTMAX_KERNELS(KERNEL) \
  KERNEL(forward, SoftmaxArguments)      \
  KERNEL(backward, SoftmaxBackwardArguments)
LOCKSTEP_KERNEL_FAMILY(softmax, SoftmaxKernels, LOCKSTEP_SOFTMAX_KERNELS)
