#pragma once

#include "lockstep/optim/layerwise.hpp"

/// @file
/// LARS.

namespace lockstep::optim {

/// Options of LARS, the defaults those of its paper.
struct LARSOptions {
  double lr = 0.1;
  double momentum = 0.9;
  double weight_decay = 0.0;        ///< added to the gradient, times the parameter
  double trust_coefficient = 1e-3;  ///< a step's length over the parameter's, at lr 1
  double eps = 1e-8;                ///< added to the gradient's norm
  bool adapt = true;                ///< false: momentum SGD, as biases and norms often are trained
  bool replicated = false;  ///< with a group of ranks: all of them hold these parameters alike
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
    visitor("momentum", options.momentum);
    visitor("weight_decay", options.weight_decay);
    visitor("trust_coefficient", options.trust_coefficient);
    visitor("eps", options.eps);
    visitor("adapt", options.adapt);
    visitor("replicated", options.replicated);
    visitor("maximize", options.maximize);
    visitor("master_weights", options.master_weights);
  }
};

/// Momentum SGD with a rate for each parameter, by the ratio of its norm to its gradient's (You,
/// Gitman and Ginsburg 2017): for very large batches.
class LARS final : public LayerwiseOptimizer<LARSOptions> {
 public:
  /// One group of parameters. @param shards as for several. @throws InvalidArgument for options out
  /// of range, no parameters, and as `Optimizer::add_group`.
  explicit LARS(ParameterList parameters, const LARSOptions& options = {},
                CommunicatorPtr shards = nullptr)
      : LARS(Groups{{std::move(parameters), options}}, std::move(shards)) {}
  /// Several groups. @param shards the ranks that hold parts of each parameter, whose norms are
  /// then those of the whole; null: each rank has all. @throws InvalidArgument as above.
  explicit LARS(const Groups& groups, CommunicatorPtr shards = nullptr)
      : LayerwiseOptimizer(groups, std::move(shards)) {}

 private:
  StateNames state_names(std::size_t group, const Tensor& parameter) const override;
  void update(std::size_t group, std::span<ParameterState* const> parameters,
              const StepScalars& scalars) override;
};

}  // namespace lockstep::optim
