#pragma once

#include <string>

#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/nn/module.hpp"

/// @file
/// Activation functions as modules, for Sequential.

namespace lockstep::nn {

/// max(x, 0).
struct ReLU : Module {
  /// @param x any shape.
  Tensor forward(const Tensor& x) const { return relu(x); }
};

/// x * Phi(x).
class GELU : public Module {
 public:
  /// Exactly, or by the tanh approximation.
  explicit GELU(GeluApproximation approximation = GeluApproximation::none)
      : approximation_(approximation) {}
  /// @param x any shape.
  Tensor forward(const Tensor& x) const { return gelu(x, approximation_); }
  std::string describe() const override {
    return approximation_ == GeluApproximation::tanh ? "tanh" : "";
  }

 private:
  GeluApproximation approximation_;
};

/// x * sigmoid(x).
struct SiLU : Module {
  /// @param x any shape.
  Tensor forward(const Tensor& x) const { return silu(x); }
};

/// Hyperbolic tangent.
struct Tanh : Module {
  /// @param x any shape.
  Tensor forward(const Tensor& x) const { return lockstep::tanh(x); }
};

/// 1 / (1 + e^-x).
struct Sigmoid : Module {
  /// @param x any shape.
  Tensor forward(const Tensor& x) const { return sigmoid(x); }
};

}  // namespace lockstep::nn
