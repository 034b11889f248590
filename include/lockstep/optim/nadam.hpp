#pragma once

#include "lockstep/optim/optimizer.hpp"

/// @file
/// NAdam.

namespace lockstep::optim {

/// Options of NAdam, as PyTorch's.
struct NAdamOptions {
  double lr = 2e-3;
  double beta1 = 0.9;            ///< decay of the first moment
  double beta2 = 0.999;          ///< decay of the second moment
  double eps = 1e-8;             ///< added to the denominator
  double weight_decay = 0.0;     ///< as in Adam; with decoupled_weight_decay as in AdamW
  double momentum_decay = 4e-3;  ///< how fast the momentum grows to beta1
  bool decoupled_weight_decay = false;
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
    visitor("momentum_decay", options.momentum_decay);
    visitor("decoupled_weight_decay", options.decoupled_weight_decay);
    visitor("maximize", options.maximize);
    visitor("master_weights", options.master_weights);
  }
};

/// Adam with Nesterov momentum (Dozat 2016).
class NAdam final : public OptimizerWith<NAdamOptions> {
 public:
  /// One group. @throws InvalidArgument for options out of range, no parameters, and as
  /// `Optimizer::add_group`.
  explicit NAdam(ParameterList parameters, const NAdamOptions& options = {})
      : NAdam(Groups{{std::move(parameters), options}}) {}
  /// Several groups. @throws InvalidArgument as above.
  explicit NAdam(const Groups& groups) : OptimizerWith(groups) {}

 private:
  StateNames state_names(std::size_t group, const Tensor& parameter) const override;
  std::string_view carried_name() const override { return "mu_product"; }
  void update(std::size_t group, std::span<ParameterState* const> parameters,
              const StepScalars& scalars) override;
};

}  // namespace lockstep::optim
