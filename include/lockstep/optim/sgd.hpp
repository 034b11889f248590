#pragma once

#include "lockstep/optim/optimizer.hpp"

/// @file
/// Stochastic gradient descent.

namespace lockstep::optim {

/// Options of SGD, as PyTorch's.
struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0.0;
  double dampening = 0.0;     ///< share of the gradient that does not enter the momentum
  double weight_decay = 0.0;  ///< added to the gradient, times the parameter
  bool nesterov = false;
  bool maximize = false;
  bool master_weights = true;  ///< keep an f32 copy of bf16 and f16 parameters
  /// Round bf16 parameters up or down at random, so that small steps count in the mean: for those
  /// without master weights.
  bool stochastic_rounding = false;
  StateFormat state_format = StateFormat::full;  ///< in how many bits it remembers

  /// @throws InvalidArgument for negative options, or Nesterov without momentum or with dampening.
  void check() const;
  /// Calls `visitor(name, member)` for all members.
  template <class Options, class Visitor>
  static void visit(Options& options, Visitor visitor) {
    visitor("lr", options.lr);
    visitor("momentum", options.momentum);
    visitor("dampening", options.dampening);
    visitor("weight_decay", options.weight_decay);
    visitor("nesterov", options.nesterov);
    visitor("maximize", options.maximize);
    visitor("master_weights", options.master_weights);
  }
};

/// Stochastic gradient descent, with momentum (Sutskever et al. 2013) where asked for.
class SGD final : public OptimizerWith<SGDOptions> {
 public:
  /// One group. @throws InvalidArgument for options out of range, no parameters, and as
  /// `Optimizer::add_group`.
  explicit SGD(ParameterList parameters, const SGDOptions& options = {})
      : SGD(Groups{{std::move(parameters), options}}) {}
  /// Several groups. @throws InvalidArgument as above.
  explicit SGD(const Groups& groups) : OptimizerWith(groups) {}

 private:
  StateNames state_names(std::size_t group, const Tensor& parameter) const override;
  void update(std::size_t group, std::span<ParameterState* const> parameters,
              const StepScalars& scalars) override;
};

}  // namespace lockstep::optim
