#pragma once

#include "arguments/family.hpp"
#include "lockstep/core/array_view.hpp"

/// @file
/// Batch normalisation over dimension 1 of [N, C, ...] (Ioffe and Szegedy 2015). Statistics,
/// weights and running values are arrays [C] of the statistics dtype (f32, or f64 for f64 data)
/// unless they share the data's.
///
/// What often follows may be part of the call, with no rounding in between:
/// y = relu(normalised + residual). An absent residual adds nothing.

namespace lockstep::kernels {

/// Normalises with the batch's own statistics and moves the running values by
/// running += momentum * (batch - running), the variance unbiased.
struct BatchNormTrainArguments {
  ArrayView y = {};
  ArrayView save_mean = {}, save_rstd = {};       ///< mean and 1 / sqrt(var + eps), for backward
  ArrayView running_mean = {}, running_var = {};  ///< may be absent
  ArrayView x = {};
  ArrayView weight = {}, bias = {};  ///< may be absent
  double momentum = 0.1;
  double eps = 1e-5;
  ArrayView residual = {};  ///< of x's shape and dtype; may be absent
  bool relu = false;
  ArrayView num_batches_tracked = {};  ///< a scalar in i64, made larger by 1; may be absent
};

/// Normalises with the running values.
struct BatchNormEvalArguments {
  ArrayView y = {};
  ArrayView running_mean = {}, running_var = {};
  ArrayView x = {};
  ArrayView weight = {}, bias = {};  ///< may be absent
  double eps = 1e-5;
  ArrayView residual = {};  ///< of x's shape and dtype; may be absent
  bool relu = false;
};

/// The gradient in front of ReLU, where the forward call ended with it; else all are absent.
struct BatchNormRelu {
  ArrayView y = {};          ///< the forward call's result
  ArrayView dz = {};         ///< written: dy where y > 0, else 0; may be dx's own memory
  bool has_residual = true;  ///< false: y is relu(normalised), which kernels may compute again,
  ArrayView bias = {};       ///< with the call's bias; may be absent, as it may there
};

/// Gradients in training.
struct BatchNormTrainBackwardArguments {
  ArrayView dx = {}, dweight = {}, dbias = {};  ///< each may be absent
  ArrayView dy = {}, x = {};
  ArrayView weight = {};  ///< may be absent
  ArrayView save_mean = {}, save_rstd = {};
  BatchNormRelu relu = {};
};

/// Gradients in evaluation: the statistics are constants.
struct BatchNormEvalBackwardArguments {
  ArrayView dx = {}, dweight = {}, dbias = {};  ///< each may be absent
  ArrayView dy = {}, x = {};
  ArrayView weight = {};  ///< may be absent
  ArrayView running_mean = {}, running_var = {};
  double eps = 1e-5;
  BatchNormRelu relu = {};
};

// The parts of training, for statistics that come from several places: what happens to them in
// between is the caller's. All vectors are of the statistics dtype and contiguous.

/// Mean and biased variance of each channel of x, which has at least one value a channel.
struct BatchNormStatisticsArguments {
  ArrayView mean = {}, variance = {};
  ArrayView x = {};
};

/// Sums over each channel of dy, and of dy * xhat; with ReLU of dz, which is written.
struct BatchNormGradientSumsArguments {
  ArrayView dy_sum = {}, product_sum = {};
  ArrayView dy = {}, x = {};
  ArrayView mean = {}, variance = {};
  double eps = 1e-5;
  BatchNormRelu relu = {};
};

/// dx = rstd * weight * (dy - dy_mean - xhat * product_mean), with the sums over the number of
/// values in a channel.
struct BatchNormInputGradientArguments {
  ArrayView dx = {};
  ArrayView dy = {}, x = {};  ///< dy in front of ReLU; may be dx
  ArrayView weight = {};      ///< may be absent
  ArrayView mean = {}, variance = {};
  ArrayView dy_mean = {}, product_mean = {};
  double eps = 1e-5;
};

}  // namespace lockstep::kernels

/// Batch normalisation of one backend. Work runs in the order of the stream.
#define LOCKSTEP_BATCH_NORM_KERNELS(KERNEL)               \
  KERNEL(train, BatchNormTrainArguments)                  \
  KERNEL(eval, BatchNormEvalArguments)                    \
  KERNEL(train_backward, BatchNormTrainBackwardArguments) \
  KERNEL(eval_backward, BatchNormEvalBackwardArguments)   \
  KERNEL(statistics, BatchNormStatisticsArguments)        \
  KERNEL(gradient_sums, BatchNormGradientSumsArguments)   \
  KERNEL(input_gradient, BatchNormInputGradientArguments)
LOCKSTEP_KERNEL_FAMILY(batch_norm, BatchNormKernels, LOCKSTEP_BATCH_NORM_KERNELS)
