#pragma once

#include "arguments/family.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Rotary position embedding.

namespace lockstep::kernels {

/// Turns pairs (i, i + D / 2) of each row by angles that all heads share:
/// y_i = x_i cos_i - x_j sin_i, y_j = x_j cos_i + x_i sin_i with j = i + D / 2.
/// The last dimension of each array has stride 1, others any; y may be x.
struct RotaryArguments {
  ArrayView y = {}, x = {};  ///< [N, H, T, D] of one floating dtype, D even
  ArrayView cos = {},
            sin = {};    ///< [N, T, D / 2], f32, or f64 for f64; repeated ones have stride 0
  bool inverse = false;  ///< turns back: the gradient
};

}  // namespace lockstep::kernels

/// Rotary position embedding of one backend. Work runs in the order of the stream.
#define LOCKSTEP_ROTARY_KERNELS(KERNEL) KERNEL(rotate, RotaryArguments)
LOCKSTEP_KERNEL_FAMILY(rotary, RotaryKernels, LOCKSTEP_ROTARY_KERNELS)
