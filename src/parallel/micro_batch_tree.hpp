#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/core/random.hpp"
#include "lockstep/parallel/bucket_reduction.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Sums of gradients whose bits depend on neither the number of ranks nor the buckets.

namespace lockstep::parallel {

/// Adds tensors along the binary tree over their order: neighbours first, then neighbouring pairs.
/// Keeps a partial sum for each bit of how many there were.
class TensorTree {
 public:
  /// @param x of the same shape as all others; not kept.
  void add(const Tensor& x);
  /// Adds what is kept to the last leaf, in place. @pre with it there are a power of two.
  void add_rest_to(const Tensor& last);

 private:
  std::size_t count_ = 0;
  std::vector<Tensor> partial_;
};

/// Reduces the gradients of a step along a fixed binary tree over its micro-batches, of which each
/// rank has as many, one behind the other: its own lower levels here, those over the ranks by the
/// sums of the host backends, which are the same tree. One division by the number of micro-batches,
/// or by the sum of their weights, comes last. Weights are added along the same tree.
class MicroBatchTree final : public BucketReduction {
 public:
  /// @param micro_batches of a step, over all ranks. @throws InvalidArgument for numbers of
  /// micro-batches or ranks that make no such tree, and for a backend with sums of its own.
  MicroBatchTree(int micro_batches, const Communicator& group);

  std::string name() const override;
  /// With the gradients of this rank's last micro-batch.
  BucketExchange exchange(GradBucket& bucket) override;

  /// This rank's micro-batches that were kept in this step.
  int count() const noexcept { return count_; }
  bool is_weighted() const noexcept { return is_weighted_; }
  /// Whether a kept micro-batch had a gradient for a parameter.
  bool has(std::size_t parameter) const { return count_ > 0 && has_[parameter]; }

  /// Before a backward. @param reduces whether it is to be the step's last.
  /// @throws InvalidArgument if that is too early, or too late.
  void check_next(bool reduces) const;
  /// Takes in a micro-batch that is not the rank's last.
  /// @param arrays of all buckets. @param has which parameters had a gradient.
  void keep(std::span<const Tensor> arrays, const std::vector<bool>& has);
  /// Its weight, an f64 scalar.
  void keep_weight(const Tensor& weight);
  /// Sum of the weights of this rank's micro-batches. @param last that of the last one.
  Tensor weights_with(const Tensor& last);
  /// What the sum is divided by in this step: undefined for the number of micro-batches.
  void set_divisor(const Tensor& divisor) { divisor_ = divisor; }
  /// Begins a forward that trains: random numbers are those of the micro-batch, whoever has it.
  void begin_forward();
  /// Where the step's random numbers begin, in words that are compared between the ranks: one that
  /// has drawn some alone since the last step would draw others than it does among fewer ranks.
  std::string describe_random_numbers() const;
  /// The step is done: random numbers go on behind those of all its micro-batches.
  void end_step();
  /// Forgets the step.
  void clear() noexcept;

 private:
  int micro_batches_, own_, first_;
  int count_ = 0;
  bool is_weighted_ = false;
  std::vector<TensorTree> buckets_;
  TensorTree weights_;
  std::vector<bool> has_;
  Tensor divisor_;
  std::optional<PhiloxState> begin_;  // of the step's random numbers
  int placed_ = -1;                   // the micro-batch whose random numbers are drawn
};

}  // namespace lockstep::parallel
