#pragma once

#include <array>
#include <cstdint>

#include "arguments/family.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// 2-D convolution (cross-correlation, as every framework means it). Images are [N, C, H, W],
/// weights [C_out, C_in / groups, KH, KW]; each contiguous or channels-last in memory.

namespace lockstep::kernels {

/// A height and a width.
using Pair = std::array<std::int64_t, 2>;

/// Geometry of a 2-D convolution.
struct ConvGeometry {
  Pair stride{1, 1};
  Pair padding{0, 0};
  Pair dilation{1, 1};
  std::int64_t groups = 1;
};

/// y = x * w + bias.
struct ConvolutionArguments {
  ArrayView y = {}, x = {}, weight = {};
  ArrayView bias = {};  ///< [C_out]; may be absent
  ConvGeometry geometry = {};
};

/// dx from dy and the weights.
struct ConvolutionDataGradientArguments {
  ArrayView dx = {}, dy = {}, weight = {};
  ConvGeometry geometry = {};
  bool accumulate = false;  ///< added to what dx holds
};

/// dweight from dy and x; of bf16 and f16 it may be f32, in which it is summed.
struct ConvolutionWeightGradientArguments {
  ArrayView dweight = {}, dy = {}, x = {};
  ConvGeometry geometry = {};
  bool accumulate = false;  ///< added to what dweight holds
};

}  // namespace lockstep::kernels

/// Convolution of one backend. Work runs in the order of the stream.
#define LOCKSTEP_CONVOLUTION_KERNELS(KERNEL)              \
  KERNEL(forward, ConvolutionArguments)                   \
  KERNEL(backward_data, ConvolutionDataGradientArguments) \
  KERNEL(backward_weight, ConvolutionWeightGradientArguments)
LOCKSTEP_KERNEL_FAMILY(convolution, ConvolutionKernels, LOCKSTEP_CONVOLUTION_KERNELS)
