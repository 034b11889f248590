#pragma once

#include "lockstep/optim/optimizer.hpp"

/// @file
/// Lion.

namespace lockstep::optim {

/// Options of Lion, those of its authors.
struct LionOptions {
  double lr = 1e-4;
  double beta1 = 0.9;         ///< share of the momentum in an update
  double beta2 = 0.99;        ///< share of the momentum that stays
  double weight_decay = 0.0;  ///< times lr: the share of the parameter that each step removes
  bool maximize = false;
  bool master_weights = true;  ///< keep an f32 copy of bf16 and f16 parameters
  /// Round bf16 parameters up or down at random, so that small steps count in the mean: for those
  /// without master weights.
  bool stochastic_rounding = false;
  StateFormat state_format = StateFormat::full;  ///< in how many bits it remembers

  /// @throws InvalidArgument for negative options or betas outside [0, 1).
  void check() const;
  /// Calls `visitor(name, member)` for all members.
  template <class Options, class Visitor>
  static void visit(Options& options, Visitor visitor) {
    visitor("lr", options.lr);
    visitor("beta1", options.beta1);
    visitor("beta2", options.beta2);
    visitor("weight_decay", options.weight_decay);
    visitor("maximize", options.maximize);
    visitor("master_weights", options.master_weights);
  }
};

/// Steps of one size, in the direction of the momentum (Chen et al. 2023).
class Lion final : public OptimizerWith<LionOptions> {
 public:
  /// One group. @throws InvalidArgument for options out of range, no parameters, and as
  /// `Optimizer::add_group`.
  explicit Lion(ParameterList parameters, const LionOptions& options = {})
      : Lion(Groups{{std::move(parameters), options}}) {}
  /// Several groups. @throws InvalidArgument as above.
  explicit Lion(const Groups& groups) : OptimizerWith(groups) {}

 private:
  StateNames state_names(std::size_t group, const Tensor& parameter) const override;
  void update(std::size_t group, std::span<ParameterState* const> parameters,
              const StepScalars& scalars) override;
};

}  // namespace lockstep::optim
