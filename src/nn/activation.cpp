#include "lockstep/nn/activation.hpp"

#include "lockstep/tensor/factories.hpp"
#include "nn/describe.hpp"

namespace lockstep::nn {
namespace {

Tensor slopes_of(const PReLUOptions& options) {
  LOCKSTEP_CHECK(options.channels > 0, InvalidArgument,
                 "PReLU: the number of channels must be at least 1, got ", options.channels);
  return full({options.channels}, options.start, options.tensor);
}

}  // namespace

std::string LeakyReLU::describe() const { return text("slope=", slope_); }

PReLU::PReLU(const PReLUOptions& options) : weight(this, "weight", slopes_of(options)) {}

std::string PReLU::describe() const { return text(weight.numel()); }

std::string ELU::describe() const { return text("alpha=", alpha_); }

CELU::CELU(double alpha) : alpha_(alpha) {
  LOCKSTEP_CHECK(alpha != 0, InvalidArgument, "CELU: alpha must not be 0");
}

std::string CELU::describe() const { return text("alpha=", alpha_); }

std::string GLU::describe() const { return text("dim=", dim_); }

std::string GELU::describe() const {
  return approximation_ == GeluApproximation::tanh ? "tanh" : "";
}

Hardtanh::Hardtanh(double low, double high) : low_(low), high_(high) {
  LOCKSTEP_CHECK(low <= high, InvalidArgument, "Hardtanh: low ", low, " is above high ", high);
}

std::string Hardtanh::describe() const { return text(low_, ", ", high_); }

Softplus::Softplus(double beta, double threshold) : beta_(beta), threshold_(threshold) {
  LOCKSTEP_CHECK(beta > 0, InvalidArgument, "Softplus: beta must be positive, got ", beta);
}

std::string Softplus::describe() const { return text("beta=", beta_); }

std::string Softmax::describe() const { return text("dim=", dim_); }

std::string LogSoftmax::describe() const { return text("dim=", dim_); }

}  // namespace lockstep::nn
