#pragma once

#include "lockstep/autograd/ops/norm.hpp"
#include "lockstep/comm/communicator.hpp"

/// @file
/// Batch norm over the batches of several ranks.

namespace lockstep::parallel {

/// `batch_norm` by the statistics of all ranks' batches together: with a data-parallel model the
/// same as one process with the whole batch, to rounding. Batches may differ in size, in each
/// extent but the channels, and be empty on some ranks; all must call it.
///
/// Moments are merged as Chan, Golub and LeVeque (1979) do: one all-gather of 2 C + 1 numbers
/// forward, one all-reduce of 2 C backward. On a GPU the host waits for nothing. Gradients of
/// weight and bias are this rank's own share, whose sum over the ranks (or average, times their
/// number) is that of the whole batch; running statistics are the same on all. In evaluation ranks
/// do not communicate.
/// @param x, running_mean, running_var, weight, bias, options, residual as for `batch_norm`, on the
/// group's device.
/// @throws as batch_norm; InvalidArgument without a group. A batch of one value in all is not
/// refused: its variance is 0.
Tensor sync_batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                       const Tensor& weight, const Tensor& bias, const BatchNormOptions& options,
                       const CommunicatorPtr& group, const Tensor& residual = {});

}  // namespace lockstep::parallel
