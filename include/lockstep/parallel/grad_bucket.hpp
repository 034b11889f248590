#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/function_ref.hpp"
#include "lockstep/parallel/tensor_work.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// The gradients of a bucket, for whoever averages them over the ranks.

namespace lockstep::parallel {

/// One bucket of a Reducer, as a BucketReduction sees it once the gradients of this rank are final.
/// Lives as long as the exchange that it is given to.
class GradBucket {
 public:
  /// Starts one of the bucket's collectives: the first, second, ... of its step, of so many bytes.
  /// Calls back with what the collective says to the other ranks.
  using Start =
      std::function<comm::Work(std::size_t number, std::size_t bytes,
                               FunctionRef<comm::Work(const comm::CollectiveOptions&)> collective)>;

  /// A bucket of a reducer's. @param averages see `averages`. @param gradients views of the buffer
  /// in the shapes of the parameters. @param names of the parameters, in the same order.
  GradBucket(std::size_t index, CommunicatorPtr group, Tensor buffer, Tensor averages,
             std::vector<Tensor> gradients, std::vector<std::string> names, Start start)
      : index_(index),
        group_(std::move(group)),
        buffer_(std::move(buffer)),
        averages_(std::move(averages)),
        gradients_(std::move(gradients)),
        names_(std::move(names)),
        start_(std::move(start)) {}
  GradBucket(const GradBucket&) = delete;
  GradBucket& operator=(const GradBucket&) = delete;

  /// Its place among the buckets of a step, from 0, the same on all ranks. After the first backward
  /// they are laid out anew, by a measured plan once more: what stays goes by `names`, not by this.
  std::size_t index() const noexcept { return index_; }
  /// The ranks.
  Communicator& group() const noexcept { return *group_; }
  /// All gradients in one array: 1-D, with gaps in between that are zero, and must stay so.
  Tensor buffer() const noexcept { return buffer_; }
  /// Where this rank's part of the averages goes; the buffer, unless the reduction shares out.
  Tensor averages() const noexcept { return averages_; }
  /// The same gradients, each a view of the buffer in its parameter's shape.
  const std::vector<Tensor>& gradients() const noexcept { return gradients_; }
  /// What the parameters are called.
  const std::vector<std::string>& names() const noexcept { return names_; }

  /// Whether a rank has a gradient of the i-th parameter in this backward. Where none has, what the
  /// exchange leaves is not taken over. Known to the last part of an exchange alone, which runs
  /// once backward has ended: true before, and true without `find_unused_parameters`.
  bool is_used(std::size_t i) const { return unused_.empty() || !unused_[i]; }

  /// Starts to reduce x over the ranks, in place. Await the result, or wait for it,
  /// before the exchange ends.
  /// @param x contiguous, on the group's device, the same shape on every rank; must not be changed
  /// before the result is there. @throws InvalidArgument for another layout or device.
  TensorWork all_reduce(const Tensor& x, comm::ReduceOp reduction = comm::ReduceOp::average());
  /// Starts to reduce x over the ranks, each of which gets its part.
  /// @param x as for all_reduce. @param part its elements are x's, divided by the number of ranks.
  TensorWork reduce_scatter(const Tensor& x, const Tensor& part,
                            comm::ReduceOp reduction = comm::ReduceOp::average());
  /// Starts to join the ranks' parts, in rank order.
  /// @param part contiguous, as many elements on every rank. @param whole those of all ranks.
  TensorWork all_gather(const Tensor& part, const Tensor& whole);

  /// For the reducer: the next collective is a step's first.
  void begin_step() noexcept {
    started_.clear();
    unused_.clear();
  }
  /// For the reducer, once it is known. @param unused of each parameter: whether no rank uses it.
  void note_unused(std::vector<bool> unused) { unused_ = std::move(unused); }
  /// For the reducer, once the exchange has ended.
  /// @throws InvalidArgument if a collective of this step was not awaited; names the first.
  void check_awaited() const;

 private:
  struct Started {
    std::string_view op;
    std::shared_ptr<bool> awaited = std::make_shared<bool>(false);
  };

  comm::Work start(std::string_view op, std::size_t bytes,
                   FunctionRef<comm::Work(const comm::CollectiveOptions&)> collective) {
    comm::Work work = start_(started_.size(), bytes, collective);
    started_.push_back({op});
    return work;
  }

  std::size_t index_;
  CommunicatorPtr group_;
  Tensor buffer_, averages_;
  std::vector<Tensor> gradients_;
  std::vector<std::string> names_;
  Start start_;
  std::vector<Started> started_;  // in this step
  std::vector<bool> unused_;      // in this step; empty: not known, or none
};

}  // namespace lockstep::parallel
