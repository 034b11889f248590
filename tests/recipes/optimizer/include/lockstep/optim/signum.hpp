#pragma once

#include "lockstep/optim/optimizer.hpp"

/// @file
/// Signum.

namespace lockstep::optim {

/// Options of Signum.
struct SignumOptions {
  double lr = 1e-4;
  double momentum = 0.9;
  double weight_decay = 0.0;  ///< times lr: the share of the parameter that each step removes

  /// @throws InvalidArgument for options out of range.
  void check() const;
  /// Calls `visitor(name, member)` for all members.
  template <class Options, class Visitor>
  static void visit(Options& options, Visitor visitor) {
    visitor("lr", options.lr);
    visitor("momentum", options.momentum);
    visitor("weight_decay", options.weight_decay);
  }
};

/// Steps of one size, by the sign of the momentum (Bernstein et al. 2018).
class Signum final : public OptimizerWith<SignumOptions> {
 public:
  /// One group. @throws InvalidArgument as SGD's.
  explicit Signum(ParameterList parameters, const SignumOptions& options = {})
      : Signum(Groups{{std::move(parameters), options}}) {}
  /// Several groups. @throws InvalidArgument as above.
  explicit Signum(const Groups& groups) : OptimizerWith(groups) {}

 private:
  StateNames state_names(std::size_t group, const Tensor& parameter) const override;
  void update(std::size_t group, std::span<ParameterState* const> parameters,
              const StepScalars& scalars) override;
};

}  // namespace lockstep::optim
