#pragma once

#include <array>
#include <cstdint>

#include "arguments/family.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Layer norm and RMS norm over the rows of contiguous arrays [n, columns], of one floating dtype,
/// or with y and dy in bf16 or f16 where all else is f32. Statistics are f32, or f64 where the data
/// is f64.

namespace lockstep::kernels {

/// y = (x - mean) * rstd * weight + bias (Ba et al. 2016).
struct LayerNormArguments {
  ArrayView y = {};
  ArrayView mean = {}, rstd = {};  ///< [n], kept for backward
  ArrayView x = {};
  ArrayView weight = {}, bias = {};  ///< [columns]; may be absent
  double eps = 1e-5;
};

/// Columns of a summand that sum to what those of another array sum to, which is less to read.
struct SummandPart {
  std::int64_t columns = 0;
  ArrayView rows = {};     ///< [m, columns] in dy's dtype, rows dense; absent: the sums are 0
  ArrayView weights = {};  ///< [m] in the statistics dtype, of the rows; absent: 1
};

/// What else the kernel of a backward computes, where others would read an array again for it: the
/// gradients of biases.
struct NormByproducts {
  ArrayView dx_sums = {};    ///< [columns] in x's dtype: the sums of dx's columns; may be absent
  ArrayView dx_totals = {};  ///< the same alone, in the statistics dtype; may be absent
  ArrayView dx_copy = {};    ///< dx in dy's dtype, which is another one; may be absent
  ArrayView summand = {};    ///< [m, k] contiguous, in dy's dtype; may be absent
  ArrayView sums = {};       ///< [k] in x's dtype: the sums of the summand's columns
  std::array<SummandPart, 3> parts = {};       ///< side by side all columns of the summand, or none
  bool add_dx_sums = false, add_sums = false;  ///< to what is there
  explicit operator bool() const { return dx_sums || dx_totals || dx_copy || summand; }
};

/// Gradients of layer norm.
struct LayerNormBackwardArguments {
  ArrayView dx = {}, dweight = {}, dbias = {};  ///< each may be absent
  ArrayView dy = {}, x = {}, weight = {}, mean = {}, rstd = {};
  bool add_dx = false, add_dweight = false, add_dbias = false;  ///< to what is there
  NormByproducts byproducts = {};  ///< those of dx only where there is a dx
};

/// y = x * rstd * weight with rstd = 1 / sqrt(mean(x^2) + eps) (Zhang and Sennrich 2019).
struct RmsNormArguments {
  ArrayView y = {};
  ArrayView rstd = {};  ///< [n], kept for backward
  ArrayView x = {};
  ArrayView weight = {};  ///< [columns]; may be absent
  double eps = 1e-5;
};

/// Gradients of RMS norm.
struct RmsNormBackwardArguments {
  ArrayView dx = {}, dweight = {};  ///< each may be absent
  ArrayView dy = {}, x = {}, weight = {}, rstd = {};
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
