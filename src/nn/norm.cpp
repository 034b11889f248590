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

const GroupNormOptions& checked(const GroupNormOptions& options) {
  LOCKSTEP_CHECK(
      options.groups > 0 && options.channels > 0 && options.channels % options.groups == 0,
      InvalidArgument, "GroupNorm: ", options.groups, " groups do not divide ", options.channels,
      " channels");
  return options;
}

}  // namespace

LayerNorm::LayerNorm(const LayerNormOptions& options)
    : shape_(checked(options.shape)),
      eps_(options.eps),
      result_(options.result),
      weight(this, "weight", options.affine ? ones(shape_, options.tensor) : Tensor()),
      bias(this, "bias",
           options.affine && options.bias ? zeros(shape_, options.tensor) : Tensor()) {}

Tensor LayerNorm::forward(const Tensor& x) const {
  return layer_norm(x, shape_, weight, bias, eps_, result_);
}

std::string LayerNorm::describe() const { return text(shape_, ", eps=", eps_); }

GroupNorm::GroupNorm(const GroupNormOptions& options)
    : options_(checked(options)),
      weight(this, "weight", options.affine ? ones({options.channels}, options.tensor) : Tensor()),
      bias(this, "bias", options.affine ? zeros({options.channels}, options.tensor) : Tensor()) {}

Tensor GroupNorm::forward(const Tensor& x) const {
  LOCKSTEP_CHECK(x.dim() >= 2 && x.size(1) == options_.channels, InvalidArgument, "GroupNorm of ",
                 options_.channels, " channels got shape ", x.shape(), ", expected [N, C, ...]");
  return group_norm(x, options_.groups, weight, bias, options_.eps);
}

std::string GroupNorm::describe() const {
  return text(options_.groups, ", ", options_.channels, ", eps=", options_.eps);
}

RMSNorm::RMSNorm(const RMSNormOptions& options)
    : shape_(checked(options.shape)),
      eps_(options.eps),
      result_(options.result),
      weight(this, "weight", options.affine ? ones(shape_, options.tensor) : Tensor()) {}

Tensor RMSNorm::forward(const Tensor& x) const {
  return rms_norm(x, shape_, weight, eps_, result_);
}

std::string RMSNorm::describe() const { return text(shape_, ", eps=", eps_); }

}  // namespace lockstep::nn
