#pragma once

#include "arguments/kernel.hpp"
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

/// Interpolation of one backend. Work runs in the order of the stream.
struct InterpolationKernels {
  Kernel<InterpolationArguments> forward = {};
  Kernel<InterpolationBackwardArguments> backward = {};
};

}  // namespace lockstep::kernels
