#pragma once

#include "lockstep/optim/optimizer.hpp"

/// @file
/// Adagrad.

namespace lockstep::optim {

/// Options of Adagrad, as PyTorch's.
struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0.0;                   ///< step t has lr / (1 + (t - 1) lr_decay)
  double weight_decay = 0.0;               ///< added to the gradient, times the parameter
  double initial_accumulator_value = 0.0;  ///< what the sum of squares begins with
  double eps = 1e-10;                      ///< added to the denominator
  bool maximize = false;
  bool master_weights = true;  ///< keep an f32 copy of bf16 and f16 parameters
  /// Round bf16 parameters up or down at random, so that small steps count in the mean: for those
  /// without master weights.
  bool stochastic_rounding = false;
  StateFormat state_format = StateFormat::full;  ///< in how many bits it remembers

  /// @throws InvalidArgument for negative options.
  void check() const;
  /// Calls `visitor(name, member)` for all members.
  template <class Options, class Visitor>
  static void visit(Options& options, Visitor visitor) {
    visitor("lr", options.lr);
    visitor("lr_decay", options.lr_decay);
    visitor("weight_decay", options.weight_decay);
    visitor("initial_accumulator_value", options.initial_accumulator_value);
    visitor("eps", options.eps);
    visitor("maximize", options.maximize);
    visitor("master_weights", options.master_weights);
  }
};

/// Steps over the root of all squared gradients so far (Duchi, Hazan and Singer 2011).
class Adagrad final : public OptimizerWith<AdagradOptions> {
 public:
  /// One group. @throws InvalidArgument for options out of range, no parameters, and as
  /// `Optimizer::add_group`.
  explicit Adagrad(ParameterList parameters, const AdagradOptions& options = {})
      : Adagrad(Groups{{std::move(parameters), options}}) {}
  /// Several groups. @throws InvalidArgument as above.
  explicit Adagrad(const Groups& groups) : OptimizerWith(groups) {}

 private:
  StateNames state_names(std::size_t group, const Tensor& parameter) const override;
  void update(std::size_t group, std::span<ParameterState* const> parameters,
              const StepScalars& scalars) override;
};

}  // namespace lockstep::optim
