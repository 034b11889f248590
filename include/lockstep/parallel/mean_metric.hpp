#pragma once

#include <string>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// A mean over batches and over the ranks of a group.

namespace lockstep::parallel {

/// A weighted mean, such as a loss or an accuracy over an evaluation whose batches differ in size
/// and of which a rank may have none: sums of values and weights in f64, on the device of the
/// values, so that adding to them does not wait. Not recorded by autograd; for one thread.
class MeanMetric {
 public:
  /// @param device of the values, and of the groups that it is taken over. @param name what it is
  /// the mean of, which ranks compare when they take it over a group.
  explicit MeanMetric(Device device = cpu, std::string name = {});
  MeanMetric(MeanMetric&&) = default;
  MeanMetric& operator=(MeanMetric&&) = default;

  /// Adds what `weight` samples give together. Does not wait.
  /// @param sum one element of any dtype on the metric's device: a loss summed over the samples, or
  /// how many of them were right. @param weight how many they are, from 0 on; of none, such as a
  /// batch of 0 rows, whose mean is NaN, nothing is added.
  /// @throws InvalidArgument for more elements, another device, or a weight that is negative or not
  /// finite; the mean is as it was then.
  void add(const Tensor& sum, double weight);

  /// The mean of what this rank has added; NaN if that weighs nothing. Waits for it.
  double value() const;
  /// The mean of what all ranks of the group have added, the same on each; NaN if that weighs
  /// nothing. All must call it; waits for them. Leaves the ranks' own sums as they are.
  /// @throws what the group's all_reduce does.
  double value(Communicator& group) const;

  /// Begins anew.
  void reset();

 private:
  Tensor sums_;  ///< of values, and of weights
  std::string name_;
};

}  // namespace lockstep::parallel
