#pragma once

#include "lockstep/optim/layerwise.hpp"

/// @file
/// LAMB.

namespace lockstep::optim {

/// Options of LAMB, the defaults those of its paper.
struct LAMBOptions {
  double lr = 1e-3;
  double beta1 = 0.9;          ///< decay of the first moment
  double beta2 = 0.999;        ///< decay of the second moment
  double eps = 1e-6;           ///< added to the denominator
  double weight_decay = 0.01;  ///< of the parameter, in the direction whose norm is taken
  bool adapt = true;           ///< false: AdamW, as biases and norms often are trained
  bool replicated = false;     ///< with a group of ranks: all of them hold these parameters alike
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
    visitor("adapt", options.adapt);
    visitor("replicated", options.replicated);
    visitor("maximize", options.maximize);
    visitor("master_weights", options.master_weights);
  }
};

/// AdamW with a rate for each parameter, by the ratio of its norm to its step's (You et al. 2020):
/// for very large batches.
class LAMB final : public LayerwiseOptimizer<LAMBOptions> {
 public:
  /// One group of parameters. @param shards as for several. @throws InvalidArgument for options out
  /// of range, no parameters, and as `Optimizer::add_group`.
  explicit LAMB(ParameterList parameters, const LAMBOptions& options = {},
                CommunicatorPtr shards = nullptr)
      : LAMB(Groups{{std::move(parameters), options}}, std::move(shards)) {}
  /// Several groups. @param shards the ranks that hold parts of each parameter, whose norms are
  /// then those of the whole; null: each rank has all. @throws InvalidArgument as above.
  explicit LAMB(const Groups& groups, CommunicatorPtr shards = nullptr)
      : LayerwiseOptimizer(groups, std::move(shards)) {}

 private:
  StateNames state_names(std::size_t group, const Tensor& parameter) const override;
  void update(std::size_t group, std::span<ParameterState* const> parameters,
              const StepScalars& scalars) override;
};

}  // namespace lockstep::optim
