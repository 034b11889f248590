#pragma once

#include "arguments/family.hpp"
#include "functional/interpolation.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Resizing of images [N, C, H, W], each contiguous or channels-last.

namespace lockstep::kernels {

/// y = x at other positions.
struct InterpolationArguments {
  ArrayView y = {}, x = {};
  InterpolationAxis height = {}, width = {};
};

/// The gradient of x from that of y. The order of additions is fixed.
struct InterpolationBackwardArguments {
  ArrayView dx = {}, dy = {};
  InterpolationAxis height = {}, width = {};
};

}  // namespace lockstep::kernels

/// Interpolation of one backend. Work runs in the order of the stream.
#define LOCKSTEP_INTERPOLATION_KERNELS(KERNEL) \
  KERNEL(forward, InterpolationArguments)      \
  KERNEL(backward, InterpolationBackwardArguments)
LOCKSTEP_KERNEL_FAMILY(interpolation, InterpolationKernels, LOCKSTEP_INTERPOLATION_KERNELS)
