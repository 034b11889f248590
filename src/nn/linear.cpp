#include "lockstep/nn/linear.hpp"

#include "lockstep/autograd/ops/matmul.hpp"
#include "lockstep/nn/init.hpp"
#include "nn/describe.hpp"

namespace lockstep::nn {
namespace {

const LinearOptions& checked(const LinearOptions& options) {
  LOCKSTEP_CHECK(options.in > 0 && options.out > 0, InvalidArgument, "Linear(", options.in, ", ",
                 options.out, "): the numbers of features must be at least 1");
  return options;
}

}  // namespace

Linear::Linear(const LinearOptions& options)
    : weight(this, "weight",
             init::layer_weight({checked(options).out, options.in}, options.tensor)),
      bias(this, "bias", init::layer_bias(weight, options.bias)) {}

Tensor Linear::forward(const Tensor& x) const { return linear(x, weight, bias); }

Tensor Linear::forward(const Tensor& x, const Tensor& addend) const {
  return addend.defined() ? add_linear(addend, x, weight, bias) : linear(x, weight, bias);
}

std::string Linear::describe() const {
  return text(weight.size(1), ", ", weight.size(0), bias.defined() ? "" : ", no bias");
}

}  // namespace lockstep::nn
