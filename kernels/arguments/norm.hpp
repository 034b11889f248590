#pragma once

#include "arguments/family.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Layer norm and RMS norm over the rows of contiguous arrays [n, columns], of one floating dtype,
/// or with y and dy in bf16 or f16 where all else is f32. Statistics are f32, or f64 where the data
/// is f64.

namespace lockstep::kernels {

/// Counters, i32, by which the blocks of a backward see who is the last. Forward sets them to 0,
/// and backward leaves them so. Where there are none, backward is a kernel more.
inline constexpr std::int64_t norm_arrivals = 33;

/// y = (x - mean) * rstd * weight + bias (Ba et al. 2016).
struct LayerNormArguments {
  ArrayView y = {};
  ArrayView mean = {}, rstd = {};  ///< [n], kept for backward
  ArrayView arrivals = {};         ///< [norm_arrivals], kept for backward; may be absent
  ArrayView x = {};
  ArrayView weight = {}, bias = {};  ///< [columns]; may be absent
  double eps = 1e-5;
};

/// Gradients of layer norm.
struct LayerNormBackwardArguments {
  ArrayView dx = {}, dweight = {}, dbias = {};  ///< each may be absent
  ArrayView dy = {}, x = {}, weight = {}, mean = {}, rstd = {};
  ArrayView arrivals = {};  ///< as forward left them; may be absent
  bool add_dx = false, add_dweight = false, add_dbias = false;  ///< to what is there
};

/// y = x * rstd * weight with rstd = 1 / sqrt(mean(x^2) + eps) (Zhang and Sennrich 2019).
struct RmsNormArguments {
  ArrayView y = {};
  ArrayView rstd = {};      ///< [n], kept for backward
  ArrayView arrivals = {};  ///< [norm_arrivals], kept for backward; may be absent
  ArrayView x = {};
  ArrayView weight = {};  ///< [columns]; may be absent
  double eps = 1e-5;
};

/// Gradients of RMS norm.
struct RmsNormBackwardArguments {
  ArrayView dx = {}, dweight = {};  ///< each may be absent
  ArrayView dy = {}, x = {}, weight = {}, rstd = {};
  ArrayView arrivals = {};                   ///< as forward left them; may be absent
  bool add_dx = false, add_dweight = false;  ///< to what is there
};

}  // namespace lockstep::kernels

/// Row norms of one backend. Work runs in the order of the stream.
#define LOCKSTEP_NORM_KERNELS(KERNEL)                     \
  KERNEL(layer_norm, LayerNormArguments)                  \
  KERNEL(layer_norm_backward, LayerNormBackwardArguments) \
  KERNEL(rms_norm, RmsNormArguments)                      \
  KERNEL(rms_norm_backward, RmsNormBackwardArguments)
LOCKSTEP_KERNEL_FAMILY(norm, NormKernels, LOCKSTEP_NORM_KERNELS)
