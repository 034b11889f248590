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
};

/// Stochastic gradient descent, with momentum (Sutskever et al. 2013) where asked for.
class SGD final : public OptimizerWith<SGDOptions> {
 public:
  /// One group. @throws InvalidArgument for negative options, Nesterov without momentum or with
  /// dampening, and as `Optimizer::add_group`.
  explicit SGD(std::vector<Tensor> parameters, const SGDOptions& options = {})
      : SGD(Groups{{std::move(parameters), options}}) {}
  /// Several groups. @throws InvalidArgument as above.
  explicit SGD(const Groups& groups);

 private:
  void update(std::size_t group, std::span<ParameterState* const> parameters,
              std::int64_t step) override;
};

}  // namespace lockstep::optim
