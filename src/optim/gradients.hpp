#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/array_view.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// The gradients of a list of parameters as a whole.

namespace lockstep::optim {

/// @param user who is to change the parameter. @throws InvalidArgument if a WeightAverage has put
/// its average into it.
void check_holds_weights(const Tensor& parameter, std::string_view user = "an optimizer");
/// To be called for each parameter before an optimizer's step, with a gradient or without.
/// @throws InvalidArgument if its gradient is what backwards have only added up on this rank,
/// and as above.
void check_update(const Tensor& parameter);

/// For whoever clips without a group. Where ranks average the gradients of some of these parameters
/// and not those of others, the norm of all is each rank's own, and so is what is left of the
/// averages: that is said, once in a process.
void warn_of_own_gradients(std::string_view user, std::span<const Tensor> parameters);

/// How a list of parameters is spread over ranks; see ClipGradNormOptions.
struct Spread {
  CommunicatorPtr group = nullptr;
  std::span<const Tensor> replicated = {};
  std::string purpose = {};  ///< of sums over the ranks, which is compared between them
  bool is_summed = true;     ///< false: shards may do without a group, for nothing is summed
};

/// The gradients that there are, each once, on one device.
class Gradients {
 public:
  /// @param user the function that is blamed in messages.
  /// @throws InvalidArgument for several devices, or a replicated tensor that is no parameter.
  Gradients(const char* user, std::span<const Tensor> parameters, const Spread& spread);

  /// True if there are none here, nor other ranks that might have some.
  bool empty() const { return tensors_.empty() && !group_; }
  /// @pre not empty
  Device device() const { return group_ ? group_->device() : tensors_[0].device(); }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  std::span<const ArrayView> views() const { return views_; }
  /// Sum of squares over all ranks, in the two f64 parts of functional::SquareSum: for `measure`.
  Tensor square_sum() const;
  /// The p-norm of all elements over all ranks, an f64 scalar; p may be infinite.
  Tensor norm(double p) const;
  /// Divides them by an f64 scalar of their device. @return as square_sum, of the quotients.
  Tensor divide(const Tensor& divisor) const;
  /// To be called once a kernel has written to them.
  void note_write() const;

 private:
  Tensor sum_over_ranks(const Tensor& value) const;
  Tensor local_square_sum(std::span<const ArrayView> views) const;
  Tensor largest_over_ranks(const Tensor& value) const;
  template <class Combine, class OverRanks>
  Tensor total_of(const Combine& combine, const OverRanks& over_ranks) const;

  std::vector<Tensor> tensors_;  // those that count on each rank, then those that count once
  std::vector<ArrayView> views_;
  std::size_t counted_on_each_rank_ = 0;
  CommunicatorPtr group_;
  std::string purpose_;
};

/// What an optimizer's step is told of gradients: f64 scalars on their device.
struct MeasuredGradients {
  Tensor norm;       ///< without the loss scale, before it is limited
  Tensor divisor;    ///< takes the loss scale off and limits the norm
  Tensor found_inf;  ///< 1 if not all are finite, else 0
};

/// @param square_sum as Gradients give it. @param loss_scale that is in them, or undefined.
MeasuredGradients measure(const Tensor& square_sum, const Tensor& loss_scale, double limit);

}  // namespace lockstep::optim
