#pragma once

#include "arguments/family.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Scaling rows to a largest magnitude of 1.

namespace lockstep::kernels {

/// y = x / max(|x|) in each row.
struct RowScaleArguments {
  ArrayView y = {}, x = {};  ///< contiguous, floating
  double floor = 0.0;        ///< the least divisor
};

}  // namespace lockstep::kernels

/// Row scaling. Work runs in the order of the stream.
#define LOCKSTEP_ROW_SCALE_KERNELS(KERNEL) KERNEL(forward, RowScaleArguments)
LOCKSTEP_KERNEL_FAMILY(row_scale, RowScaleKernels, LOCKSTEP_ROW_SCALE_KERNELS)
