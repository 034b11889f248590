#include "autograd/ops/batch_norm_call.hpp"
#include "autograd/ops/counted_batch_norm.hpp"
#include "lockstep/autograd/recomputation.hpp"

namespace lockstep {

LOCKSTEP_OP(batch_norm, floating, follow, own)

namespace {

using namespace autograd;

Tensor train(const BatchNormCall& call, const Tensor& running_mean, const Tensor& running_var,
             const Tensor& num_batches_tracked, const BatchNormOptions& options) {
  const Tensor x = image_of(call);
  const Tensor &weight = call[1], &bias = call[2], residual = residual_of(call, x);
  const TensorOptions statistics{statistics_dtype(x.dtype()), x.device()};
  const Tensor mean = empty({x.size(1)}, statistics), rstd = empty({x.size(1)}, statistics);
  Tensor y = empty_like(x);
  const bool moves = !Recomputation::is_running();  // they moved in the first run
  for (const Tensor& running : {running_mean, running_var, num_batches_tracked})
    if (moves && running.defined()) begin_write(ops::batch_norm.name, running);
  backend_of(x).batch_norm.train(
      {.y = y.view(),
       .save_mean = mean.view(),
       .save_rstd = rstd.view(),
       .running_mean = view_or_absent(moves ? running_mean : Tensor()),
       .running_var = view_or_absent(moves ? running_var : Tensor()),
       .x = x.view(),
       .weight = view_or_absent(weight),
       .bias = view_or_absent(bias),
       .momentum = options.momentum,
       .eps = options.eps,
       .residual = view_or_absent(residual),
       .relu = options.relu,
       .num_batches_tracked = view_or_absent(moves ? num_batches_tracked : Tensor())},
      stream_of(x));
  if (!call.recording()) return y;
  return call.record(
      y, [relu = options.relu, x = SavedTensor(x), weight = SavedTensor(weight),
          mean = SavedTensor(mean), rstd = SavedTensor(rstd),
          behind = SavedRelu(call, options, y)](const Tensor& dy_in, InputGradients& inputs) {
        const Tensor& input = x.get();
        const Tensor dy = ordered(dy_in, !input.is_contiguous());
        const BatchNormGradients gradients(inputs, input, relu);
        write_parameter_gradients(inputs, dy, [&](const Tensor& dweight, const Tensor& dbias) {
          backend_of(dy).batch_norm.train_backward({.dx = view_or_absent(gradients.dx),
                                                    .dweight = view_or_absent(dweight),
                                                    .dbias = view_or_absent(dbias),
                                                    .dy = dy.view(),
                                                    .x = input.view(),
                                                    .weight = view_or_absent(weight.get()),
                                                    .save_mean = mean.get().view(),
                                                    .save_rstd = rstd.get().view(),
                                                    .relu = behind.view(gradients)},
                                                   stream_of(dy));
        });
        gradients.set(inputs, dy);
      });
}

Tensor evaluate(const BatchNormCall& call, const Tensor& running_mean, const Tensor& running_var,
                const BatchNormOptions& options) {
  const Tensor x = image_of(call);
  const Tensor& weight = call[1];
  const Tensor y = normalised(call, x, running_mean, running_var, options);
  if (!call.recording()) return y;
  return call.record(
      y, [relu = options.relu, eps = options.eps, x = SavedTensor(x), weight = SavedTensor(weight),
          mean = SavedTensor(running_mean), var = SavedTensor(running_var),
          behind = SavedRelu(call, options, y)](const Tensor& dy_in, InputGradients& inputs) {
        const Tensor& input = x.get();
        const Tensor dy = ordered(dy_in, !input.is_contiguous());
        const BatchNormGradients gradients(inputs, input, relu);
        write_parameter_gradients(inputs, dy, [&](const Tensor& dweight, const Tensor& dbias) {
          backend_of(dy).batch_norm.eval_backward({.dx = view_or_absent(gradients.dx),
                                                   .dweight = view_or_absent(dweight),
                                                   .dbias = view_or_absent(dbias),
                                                   .dy = dy.view(),
                                                   .x = input.view(),
                                                   .weight = view_or_absent(weight.get()),
                                                   .running_mean = mean.get().view(),
                                                   .running_var = var.get().view(),
                                                   .eps = eps,
                                                   .relu = behind.view(gradients)},
                                                  stream_of(dy));
        });
        gradients.set(inputs, dy);
      });
}

}  // namespace

Tensor autograd::counted_batch_norm(const Tensor& x, const Tensor& running_mean,
                                    const Tensor& running_var, const Tensor& num_batches_tracked,
                                    const Tensor& weight, const Tensor& bias,
                                    const BatchNormOptions& options, const Tensor& residual) {
  const OpCall call(ops::batch_norm, x, weight, bias, residual);
  check_batch_norm(call, running_mean, running_var, options);
  LOCKSTEP_CHECK(!options.training || x.numel() > x.size(1), InvalidArgument, call.name(),
                 ": training needs more than one value a channel, got shape ", x.shape());
  LOCKSTEP_CHECK(
      !num_batches_tracked.defined() ||
          (num_batches_tracked.dtype() == DType::i64 && num_batches_tracked.device() == x.device()),
      InvalidArgument, call.name(), ": num_batches_tracked is of ", num_batches_tracked.dtype(),
      " on ", num_batches_tracked.device(), "; it must be of i64 on ", x.device());
  if (options.training) return train(call, running_mean, running_var, num_batches_tracked, options);
  return evaluate(call, running_mean, running_var, options);
}

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight, const Tensor& bias, const BatchNormOptions& options,
                  const Tensor& residual) {
  return counted_batch_norm(x, running_mean, running_var, {}, weight, bias, options, residual);
}

}  // namespace lockstep
