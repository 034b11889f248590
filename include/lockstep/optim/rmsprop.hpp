#pragma once

#include "lockstep/optim/optimizer.hpp"

/// @file
/// RMSprop.

namespace lockstep::optim {

/// Options of RMSprop, as PyTorch's.
struct RMSpropOptions {
  double lr = 1e-2;
  double alpha = 0.99;        ///< decay of the mean of squares
  double eps = 1e-8;          ///< added to the denominator
  double weight_decay = 0.0;  ///< added to the gradient, times the parameter
  double momentum = 0.0;
  bool centered = false;  ///< divide by the deviation instead (Graves 2013)
  bool maximize = false;
  bool master_weights = true;  ///< keep an f32 copy of bf16 and f16 parameters
  /// Round bf16 parameters up or down at random, so that small steps count in the mean: for those
  /// without master weights.
  bool stochastic_rounding = false;
  StateFormat state_format = StateFormat::full;  ///< in how many bits it remembers

  /// @throws InvalidArgument for negative options or an alpha outside [0, 1).
  void check() const;
  /// Calls `visitor(name, member)` for all members.
  template <class Options, class Visitor>
  static void visit(Options& options, Visitor visitor) {
    visitor("lr", options.lr);
    visitor("alpha", options.alpha);
    visitor("eps", options.eps);
    visitor("weight_decay", options.weight_decay);
    visitor("momentum", options.momentum);
    visitor("centered", options.centered);
    visitor("maximize", options.maximize);
    visitor("master_weights", options.master_weights);
  }
};

/// Steps over the root of the mean squared gradient (Tieleman and Hinton 2012).
class RMSprop final : public OptimizerWith<RMSpropOptions> {
 public:
  /// One group. @throws InvalidArgument for options out of range, no parameters, and as
  /// `Optimizer::add_group`.
  explicit RMSprop(ParameterList parameters, const RMSpropOptions& options = {})
      : RMSprop(Groups{{std::move(parameters), options}}) {}
  /// Several groups. @throws InvalidArgument as above.
  explicit RMSprop(const Groups& groups) : OptimizerWith(groups) {}

 private:
  StateNames state_names(std::size_t group, const Tensor& parameter) const override;
  void update(std::size_t group, std::span<ParameterState* const> parameters,
              const StepScalars& scalars) override;
};

}  // namespace lockstep::optim
