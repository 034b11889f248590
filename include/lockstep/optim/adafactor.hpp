#pragma once

#include "lockstep/optim/optimizer.hpp"

/// @file
/// Adafactor.

namespace lockstep::optim {

/// Options of Adafactor, as PyTorch's.
struct AdafactorOptions {
  double lr = 1e-2;           ///< bounds the relative step, which is 1 / sqrt(t) at most
  double beta2_decay = -0.8;  ///< the second moment takes in a share of t^beta2_decay
  double eps1 = 0.0;          ///< floor of the denominator; 0: the dtype's machine epsilon
  double eps2 = 1e-3;         ///< floor of the parameter's root mean square
  double d = 1.0;             ///< bound on an update's root mean square
  double weight_decay = 0.0;  ///< times lr: the share of the parameter that each step removes
  bool maximize = false;
  bool master_weights = true;  ///< keep an f32 copy of bf16 and f16 parameters
  /// Round bf16 parameters up or down at random, so that small steps count in the mean: for those
  /// without master weights.
  bool stochastic_rounding = false;
  StateFormat state_format = StateFormat::full;  ///< in how many bits it remembers

  /// @throws InvalidArgument for negative options, a positive beta2_decay, or d below 1.
  void check() const;
  /// Calls `visitor(name, member)` for all members.
  template <class Options, class Visitor>
  static void visit(Options& options, Visitor visitor) {
    visitor("lr", options.lr);
    visitor("beta2_decay", options.beta2_decay);
    visitor("eps1", options.eps1);
    visitor("eps2", options.eps2);
    visitor("d", options.d);
    visitor("weight_decay", options.weight_decay);
    visitor("maximize", options.maximize);
    visitor("master_weights", options.master_weights);
  }
};

/// Adam's denominator from the sums of rows and columns (Shazeer and Stern 2018): next to no state
/// for matrices. Made of tensor ops.
class Adafactor final : public OptimizerWith<AdafactorOptions> {
 public:
  /// One group. @throws InvalidArgument for options out of range, no parameters, and as
  /// `Optimizer::add_group`.
  explicit Adafactor(ParameterList parameters, const AdafactorOptions& options = {})
      : Adafactor(Groups{{std::move(parameters), options}}) {}
  /// Several groups. @throws InvalidArgument as above.
  explicit Adafactor(const Groups& groups) : OptimizerWith(groups) {
    for (const auto& group : groups) check_parameters(group.parameters);
  }

 private:
  void check_parameters(const ParameterList& parameters) const override {
    refuse_shards(parameters);
  }
  StateNames state_names(std::size_t group, const Tensor& parameter) const override;
  Shape state_shape(const Tensor& parameter, std::string_view state) const override;
  void update(std::size_t group, std::span<ParameterState* const> parameters,
              const StepScalars& scalars) override;
};

}  // namespace lockstep::optim
