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

const InstanceNormOptions& checked(const InstanceNormOptions& options) {
  LOCKSTEP_CHECK(options.channels > 0, InvalidArgument,
                 "InstanceNorm: the number of channels must be at least 1, got ", options.channels);
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

InstanceNorm::InstanceNorm(const InstanceNormOptions& options, int dims)
    : options_(checked(options)),
      dims_(dims),
      weight(this, "weight", options.affine ? ones({options.channels}, options.tensor) : Tensor()),
      bias(this, "bias", options.affine ? zeros({options.channels}, options.tensor) : Tensor()) {}

Tensor InstanceNorm::normalize(const Tensor& x) const {
  const std::int64_t channels = options_.channels;
  LOCKSTEP_CHECK(x.dim() == dims_ && x.size(1) == channels, InvalidArgument, "InstanceNorm of ",
                 channels, " channels got shape ", x.shape(), ", expected [N, ", channels,
                 dims_ == 3 ? ", L]" : ", H, W]");
  LOCKSTEP_CHECK(x.size(2) * (dims_ == 3 ? 1 : x.size(3)) != 1, InvalidArgument,
                 "InstanceNorm of shape ", x.shape(), ": it needs more than one value a channel");
  return group_norm(x, channels, weight, bias, options_.eps);
}

std::string InstanceNorm::describe() const {
  return text(options_.channels, ", eps=", options_.eps, options_.affine ? ", affine" : "");
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
