#pragma once

#include "lockstep/autograd/ops/norm.hpp"

/// @file
/// Batch norm as its layer calls it.

namespace lockstep::autograd {

/// As `batch_norm`, which in training adds 1 to num_batches_tracked, a scalar in i64, by a kernel
/// that runs anyway.
Tensor counted_batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                          const Tensor& num_batches_tracked, const Tensor& weight,
                          const Tensor& bias, const BatchNormOptions& options,
                          const Tensor& residual);

}  // namespace lockstep::autograd
