#include "lockstep/nn/norm.hpp"

#include "lockstep/autograd/ops/norm.hpp"
#include "lockstep/tensor/factories.hpp"
#include "nn/describe.hpp"

namespace lockstep::nn {
namespace {

const Shape& checked(const Shape& shape) {
  LOCKSTEP_CHECK(!shape.empty() && numel(shape) > 0, InvalidArgument,
                 "a norm needs the extents it normalises, got ", shape);
  return shape;
}

}  // namespace

LayerNorm::LayerNorm(const LayerNormOptions& options)
    : shape_(checked(options.shape)),
      eps_(options.eps),
      weight(this, "weight", options.affine ? ones(shape_, options.tensor) : Tensor()),
      bias(this, "bias",
           options.affine && options.bias ? zeros(shape_, options.tensor) : Tensor()) {}

Tensor LayerNorm::forward(const Tensor& x) const {
  return layer_norm(x, shape_, weight, bias, eps_);
}

std::string LayerNorm::describe() const { return text(shape_, ", eps=", eps_); }

RMSNorm::RMSNorm(const RMSNormOptions& options)
    : shape_(checked(options.shape)),
      eps_(options.eps),
      weight(this, "weight", options.affine ? ones(shape_, options.tensor) : Tensor()) {}

Tensor RMSNorm::forward(const Tensor& x) const { return rms_norm(x, shape_, weight, eps_); }

std::string RMSNorm::describe() const { return text(shape_, ", eps=", eps_); }

}  // namespace lockstep::nn
