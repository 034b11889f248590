#include "lockstep/nn/batch_norm.hpp"

#include <algorithm>

#include "autograd/ops/counted_batch_norm.hpp"
#include "lockstep/autograd/recomputation.hpp"
#include "lockstep/parallel/sync_batch_norm.hpp"
#include "lockstep/tensor/factories.hpp"
#include "nn/describe.hpp"

namespace lockstep::nn {
namespace {

const BatchNormLayerOptions& checked(const BatchNormLayerOptions& options) {
  LOCKSTEP_CHECK(options.channels > 0, InvalidArgument,
                 "BatchNorm: the number of channels must be at least 1, got ", options.channels);
  return options;
}

/// Running statistics of half precision data are kept in f32: small steps would be lost.
TensorOptions statistics(TensorOptions options) {
  return {options.dtype == DType::f64 ? DType::f64 : DType::f32, options.device};
}

/// What running statistics begin with.
Tensor tracked(const BatchNormLayerOptions& options, double value) {
  return options.track_running_stats ? full({options.channels}, value, statistics(options.tensor))
                                     : Tensor();
}

}  // namespace

BatchNorm::BatchNorm(const BatchNormLayerOptions& options, Dims dims)
    : options_(checked(options)),
      dims_(dims),
      weight(this, "weight", options.affine ? ones({options.channels}, options.tensor) : Tensor()),
      bias(this, "bias", options.affine ? zeros({options.channels}, options.tensor) : Tensor()),
      running_mean(this, "running_mean", tracked(options, 0)),
      running_var(this, "running_var", tracked(options, 1)),
      num_batches_tracked(
          this, "num_batches_tracked",
          options.track_running_stats ? zeros({}, {DType::i64, options.tensor.device}) : Tensor()) {
}

Tensor BatchNorm::normalize(const Tensor& x, const Tensor& residual) {
  LOCKSTEP_CHECK(std::find(dims_.begin(), dims_.end(), x.dim()) != dims_.end(), InvalidArgument,
                 "BatchNorm: an input of shape ", x.shape(), ", expected one of ", dims_,
                 " dimensions");
  const bool tracks = options_.track_running_stats;
  const BatchNormOptions options{.training = is_training() || !tracks,
                                 .momentum = options_.momentum,
                                 .eps = options_.eps,
                                 .relu = options_.relu};
  if (!tracks && !(group_ && is_training()))
    return batch_norm(x, {}, {}, weight, bias, options, residual);
  if (!group_)
    return autograd::counted_batch_norm(x, running_mean, running_var, num_batches_tracked, weight,
                                        bias, options, residual);
  if (tracks && is_training() && !autograd::Recomputation::is_running())
    num_batches_tracked.add_(1);
  return parallel::sync_batch_norm(x, running_mean, running_var, weight, bias, options, group_,
                                   residual);
}

std::string BatchNorm::describe() const {
  return text(options_.channels, ", eps=", options_.eps, ", momentum=", options_.momentum,
              options_.relu ? ", relu" : "",
              options_.track_running_stats ? "" : ", no running statistics",
              group_ ? ", synchronized" : "");
}

std::size_t convert_sync_batchnorm(Module& module, const CommunicatorPtr& group) {
  std::size_t count = 0;
  for (const auto& [name, part] : module.named_modules())
    if (auto* const norm = dynamic_cast<BatchNorm*>(part)) {
      norm->synchronize(group);
      ++count;
    }
  return count;
}

}  // namespace lockstep::nn
