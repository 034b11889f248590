#pragma once

#include "lockstep/optim/optimizer.hpp"

/// @file
/// Adamax.

namespace lockstep::optim {

/// Options of Adamax, as PyTorch's.
struct AdamaxOptions {
  double lr = 2e-3;
  double beta1 = 0.9;         ///< decay of the first moment
  double beta2 = 0.999;       ///< decay of the largest gradient
  double eps = 1e-8;          ///< added to the gradient's magnitude
  double weight_decay = 0.0;  ///< added to the gradient, times the parameter
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
    visitor("eps", options.eps);
    visitor("weight_decay", options.weight_decay);
    visitor("maximize", options.maximize);
    visitor("master_weights", options.master_weights);
  }
};

/// Adam by the infinity norm (Kingma and Ba 2015, section 7.1).
class Adamax final : public OptimizerWith<AdamaxOptions> {
 public:
  /// One group. @throws InvalidArgument for options out of range, no parameters, and as
  /// `Optimizer::add_group`.
  explicit Adamax(ParameterList parameters, const AdamaxOptions& options = {})
      : Adamax(Groups{{std::move(parameters), options}}) {}
  /// Several groups. @throws InvalidArgument as above.
  explicit Adamax(const Groups& groups) : OptimizerWith(groups) {}

 private:
  StateNames state_names(std::size_t group, const Tensor& parameter) const override;
  void update(std::size_t group, std::span<ParameterState* const> parameters,
              const StepScalars& scalars) override;
};

}  // namespace lockstep::optim
