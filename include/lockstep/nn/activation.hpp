#pragma once

#include <cstdint>
#include <string>

#include "lockstep/autograd/ops/loss.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/nn/member.hpp"

/// @file
/// Activation functions as modules, for Sequential.

namespace lockstep::nn {

/// x as it is: in the place of a layer that is left out.
struct Identity : Module {
  /// @param x any shape.
  Tensor forward(const Tensor& x) const { return x; }
};

/// max(x, 0).
struct ReLU : Module {
  /// @param x any shape.
  Tensor forward(const Tensor& x) const { return relu(x); }
};

/// min(max(x, 0), 6).
struct ReLU6 : Module {
  /// @param x any shape.
  Tensor forward(const Tensor& x) const { return relu6(x); }
};

/// x above 0, else slope * x.
class LeakyReLU : public Module {
 public:
  /// @param slope below 0.
  explicit LeakyReLU(double slope = 0.01) : slope_(slope) {}
  /// @param x any shape.
  Tensor forward(const Tensor& x) const { return leaky_relu(x, slope_); }
  std::string describe() const override;

 private:
  double slope_;
};

/// Options of PReLU.
struct PReLUOptions {
  std::int64_t channels = 1;  ///< 1: one slope for all
  double start = 0.25;        ///< of all slopes
  TensorOptions tensor = {};
};

/// x above 0, else slope * x, with learned slopes (He et al. 2015).
class PReLU : public Module {
 public:
  using Options = PReLUOptions;
  /// @throws InvalidArgument for no channels.
  explicit PReLU(const PReLUOptions& options);
  /// One slope for all, or one for each channel of [N, C, ...].
  explicit PReLU(std::int64_t channels = 1) : PReLU(PReLUOptions{.channels = channels}) {}
  /// @param x any shape; with slopes of channels [N, C, ...].
  Tensor forward(const Tensor& x) const { return prelu(x, weight); }
  std::string describe() const override;

  Parameter weight;  ///< [channels]
};

/// x above 0, else alpha * (e^x - 1).
class ELU : public Module {
 public:
  /// @param alpha the limit far below 0 is -alpha.
  explicit ELU(double alpha = 1.0) : alpha_(alpha) {}
  /// @param x any shape.
  Tensor forward(const Tensor& x) const { return elu(x, alpha_); }
  std::string describe() const override;

 private:
  double alpha_;
};

/// `selu`, of layers that keep mean and variance.
struct SELU : Module {
  /// @param x any shape.
  Tensor forward(const Tensor& x) const { return selu(x); }
};

/// x above 0, else alpha * (e^(x / alpha) - 1).
class CELU : public Module {
 public:
  /// @throws InvalidArgument for an alpha of 0.
  explicit CELU(double alpha = 1.0);
  /// @param x any shape.
  Tensor forward(const Tensor& x) const { return celu(x, alpha_); }
  std::string describe() const override;

 private:
  double alpha_;
};

/// The first half along a dimension times the sigmoid of the second.
class GLU : public Module {
 public:
  /// Along a dimension, which may be negative.
  explicit GLU(std::int64_t dim = -1) : dim_(dim) {}
  /// @param x any shape whose extent there is even. @return half as much.
  Tensor forward(const Tensor& x) const { return glu(x, dim_); }
  std::string describe() const override;

 private:
  std::int64_t dim_;
};

/// x * Phi(x).
class GELU : public Module {
 public:
  /// Exactly, or by the tanh approximation.
  explicit GELU(GeluApproximation approximation = GeluApproximation::none)
      : approximation_(approximation) {}
  /// @param x any shape.
  Tensor forward(const Tensor& x) const { return gelu(x, approximation_); }
  std::string describe() const override;

 private:
  GeluApproximation approximation_;
};

/// x * sigmoid(x).
struct SiLU : Module {
  /// @param x any shape.
  Tensor forward(const Tensor& x) const { return silu(x); }
};

/// x * tanh(softplus(x)).
struct Mish : Module {
  /// @param x any shape.
  Tensor forward(const Tensor& x) const { return mish(x); }
};

/// x * clamp(x + 3, 0, 6) / 6.
struct Hardswish : Module {
  /// @param x any shape.
  Tensor forward(const Tensor& x) const { return hardswish(x); }
};

/// x limited to [low, high].
class Hardtanh : public Module {
 public:
  /// @throws InvalidArgument for bounds in the wrong order.
  explicit Hardtanh(double low = -1.0, double high = 1.0);
  /// @param x any shape.
  Tensor forward(const Tensor& x) const { return hardtanh(x, low_, high_); }
  std::string describe() const override;

 private:
  double low_, high_;
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

/// log(sigmoid(x)), without overflow.
struct LogSigmoid : Module {
  /// @param x any shape.
  Tensor forward(const Tensor& x) const { return logsigmoid(x); }
};

/// log(1 + e^(beta x)) / beta, and x itself where beta x is above the threshold.
class Softplus : public Module {
 public:
  /// @throws InvalidArgument unless beta is above 0.
  explicit Softplus(double beta = 1.0, double threshold = 20.0);
  /// @param x any shape.
  Tensor forward(const Tensor& x) const { return scaled_softplus(x, beta_, threshold_); }
  std::string describe() const override;

 private:
  double beta_, threshold_;
};

/// exp(x) / sum(exp(x)) along a dimension.
class Softmax : public Module {
 public:
  /// Along a dimension, which may be negative.
  explicit Softmax(std::int64_t dim) : dim_(dim) {}
  /// @param x any shape.
  Tensor forward(const Tensor& x) const { return softmax(x, dim_); }
  std::string describe() const override;

 private:
  std::int64_t dim_;
};

/// log(softmax(x)) along a dimension, without overflow.
class LogSoftmax : public Module {
 public:
  /// Along a dimension, which may be negative.
  explicit LogSoftmax(std::int64_t dim) : dim_(dim) {}
  /// @param x any shape.
  Tensor forward(const Tensor& x) const { return log_softmax(x, dim_); }
  std::string describe() const override;

 private:
  std::int64_t dim_;
};

}  // namespace lockstep::nn
