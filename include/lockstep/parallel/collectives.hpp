#pragma once

#include <cstdint>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/reduce_op.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Differentiable collectives: ops whose operands lie on several ranks.
///
/// Backward communicates too, so all ranks of the group must call the same collectives, and run the
/// same backward, in the same order; so the tensor requires a gradient on all of them or on none.
/// Compared between the ranks, forward and backward: the op, the shape, the path of the module that
/// calls it, and, of those with a collective in backward, which recorded one of the group it is. So
/// ranks that differ in these are refused; two calls in one module that are alike in all but their
/// order are not told apart. On a GPU nothing here makes the host wait. A backward runs what one
/// thread recorded from the last to the first; of several threads' ops the order is not defined:
/// record collectives of a graph on one thread.
///
/// | forward                          | backward                                          |
/// |----------------------------------|---------------------------------------------------|
/// | copy_to_group: nothing           | all-reduce                                        |
/// | all_reduce                       | replicated: nothing; partial: all-reduce          |
/// | shard: own part                  | all-gather                                        |
/// | all_gather                       | replicated: own part; partial: reduce-scatter     |
/// | reduce_scatter                   | all-gather                                        |
/// | broadcast                        | replicated: root's own; partial: reduce to root   |
///
/// In a DistributedDataParallel's backward with a weight, gradients are exchanged by the ranks'
/// weights, also under no_sync().
///
/// The first pair, copy_to_group and a replicated all_reduce, is f and g of Megatron-LM (Shoeybi et
/// al. 2019); a partial all_gather and reduce_scatter are those of its sequence parallelism
/// (Korthikanti et al. 2022).

namespace lockstep::parallel {

/// What each rank will have of the gradient of a collective's result, where all ranks get the same
/// result. Nothing shows which of the two it is, and the wrong one gives wrong gradients: so there
/// is no default.
enum class ResultGradient : std::uint8_t {
  /// Each rank has its own contribution, and the gradient is their sum: the ranks go on in
  /// different ways, such as each with its own part of a layer or of a batch.
  partial,
  /// Each rank has all of it: the ranks go on alike, and the loss that all compute counts once.
  replicated,
};

/// Reduces over the ranks: a new tensor, the same bits on every rank.
/// @param x any shape, the same on every rank, on the group's device.
/// @param reduction with a gradient: sum, average or scaled_sum.
/// @throws InvalidArgument on another device, Unsupported for a reduction without a gradient.
Tensor all_reduce(const Tensor& x, const CommunicatorPtr& group, ResultGradient gradient,
                  comm::ReduceOp reduction = comm::ReduceOp::sum());

/// Joins the ranks' tensors along a dimension, in rank order.
/// @param x the same shape on every rank, on the group's device.
/// @throws InvalidArgument on another device, or without such a dimension.
Tensor all_gather(const Tensor& x, const CommunicatorPtr& group, std::int64_t dim,
                  ResultGradient gradient);

/// Reduces over the ranks and leaves on each its own part along a dimension.
/// @param x the same shape on every rank, on the group's device; `dim` a multiple of the number of
/// ranks. @param reduction as for all_reduce.
/// @throws InvalidArgument on another device, or for an extent that does not divide.
Tensor reduce_scatter(const Tensor& x, const CommunicatorPtr& group, std::int64_t dim,
                      comm::ReduceOp reduction = comm::ReduceOp::sum());

/// Root's values on every rank; the gradient is root's, and zero on the others.
/// @param x the same shape on every rank, on the group's device.
/// @throws InvalidArgument on another device.
Tensor broadcast(const Tensor& x, const CommunicatorPtr& group, int root, ResultGradient gradient);

/// x itself, whose gradient is the sum over the ranks: for what all ranks hold alike, and of which
/// each goes on with a part of its own.
/// @param x any shape, the same on every rank, on the group's device.
/// @throws InvalidArgument on another device.
Tensor copy_to_group(const Tensor& x, const CommunicatorPtr& group);

/// This rank's part along a dimension of what all ranks hold alike; they get the whole gradient.
/// @param x the same shape on every rank, on the group's device; `dim` a multiple of the number of
/// ranks. @return a view of x.
/// @throws InvalidArgument on another device, or for an extent that does not divide.
Tensor shard(const Tensor& x, const CommunicatorPtr& group, std::int64_t dim);

}  // namespace lockstep::parallel
