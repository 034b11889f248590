#pragma once

#include <initializer_list>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/reduce_op.hpp"
#include "lockstep/comm/work.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Collectives on tensors that run while the caller goes on. They are not recorded by autograd; the
/// differentiable ones are in collectives.hpp.

namespace lockstep::parallel {

/// A collective under way, and its result. Holds the memory of operands and result until the
/// collective is done with it, whether anybody waits or not. Who drops one knows neither when the
/// result is there nor whether it failed.
class [[nodiscard]] TensorWork {
 public:
  /// Takes over what was started. @param operands tensors that it reads or writes, beside `result`.
  /// @param awaited becomes true once `wait` was called.
  TensorWork(comm::Work work, Tensor result, std::initializer_list<Tensor> operands = {},
             std::shared_ptr<bool> awaited = nullptr);
  TensorWork(TensorWork&&) noexcept = default;
  TensorWork& operator=(TensorWork&& other) noexcept;
  ~TensorWork();

  /// The result. On the CPU blocks until it is complete; on a GPU the calling thread's current
  /// stream waits for it, and the host goes on. May be called again.
  /// @throws as comm::Work::wait.
  Tensor wait();
  /// True once the collective has ended, well or not. Never blocks.
  bool is_completed() const { return work_.is_completed(); }
  /// The collective alone.
  const comm::Work& work() const noexcept { return work_; }

 private:
  void hold_until_done() noexcept;

  comm::Work work_;
  Tensor result_;
  std::vector<IntrusivePtr<Storage>> held_;
  std::shared_ptr<bool> awaited_;
};

/// Starts the reduction of x over the ranks of a group.
/// @param x any shape, the same on every rank, on the group's device. May be changed at once.
/// @param label what x is, in place of its shape: compared between the ranks, and part of errors.
/// @throws InvalidArgument on another device, or if x requires a gradient while recording is on.
TensorWork all_reduce_async(const Tensor& x, Communicator& group,
                            comm::ReduceOp reduction = comm::ReduceOp::sum(),
                            std::string_view label = {});

/// Starts joining the ranks' tensors along dimension 0, in rank order.
/// @param x [n, ...], the same shape on every rank. Must not be changed before the result is there.
/// @param label as for all_reduce_async. @throws as all_reduce_async.
TensorWork all_gather_async(const Tensor& x, Communicator& group, std::string_view label = {});

/// Starts the reduction of x over the ranks, of which each gets its own part along dimension 0.
/// @param x [n, ...], n a multiple of the number of ranks; the same shape on every rank. Must not
/// be changed before the result is there. @param label as for all_reduce_async.
/// @throws as all_reduce_async.
TensorWork reduce_scatter_async(const Tensor& x, Communicator& group,
                                comm::ReduceOp reduction = comm::ReduceOp::sum(),
                                std::string_view label = {});

/// Starts giving every rank the root's values.
/// @param x the same shape on every rank; of the others only that is used. May be changed at once.
/// @param label as for all_reduce_async. @throws as all_reduce_async.
TensorWork broadcast_async(const Tensor& x, Communicator& group, int root = 0,
                           std::string_view label = {});

}  // namespace lockstep::parallel
