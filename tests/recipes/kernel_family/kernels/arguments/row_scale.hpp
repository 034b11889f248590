#pragma once

#include "arguments/kernel.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Scaling rows to a largest magnitude of 1.

namespace lockstep::kernels {

/// y = x / max(|x|) in each row.
struct RowScaleArguments {
  ArrayView y = {}, x = {};  ///< contiguous, floating
  double floor = 0.0;        ///< the least divisor
};

/// Row scaling of one backend. Work runs in the order of the stream.
struct RowScaleKernels {
  Kernel<RowScaleArguments> forward = {};
};

}  // namespace lockstep::kernels
