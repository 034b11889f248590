#include "autograd/ops/batch_norm_call.hpp"
#include "autograd/ops/counted_batch_norm.hpp"
#include "autograd/ops/recorded.hpp"
#include "lockstep/autograd/ops/comparison.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/reduce.hpp"
#include "lockstep/autograd/recomputation.hpp"

namespace lockstep {

LOCKSTEP_OP(batch_norm, floating, follow, own)

namespace {

using namespace autograd;

/// What a batch norm makes of its operands, from recorded ops.
struct ComposedBatchNorm {
  Tensor mean, variance;  ///< undefined: those of the batch
  Tensor passed;          ///< where ReLU, if the call ended with it, was not 0
  double eps;

  Tensor operator()(std::span<const Tensor> in) const {
    const DType wide = statistics_dtype(in[0].dtype());
    const Tensor x = in[0].to(wide);
    Dims others{0};
    Shape along = Dims::filled(x.dim(), 1);
    along[1] = x.size(1);
    for (int d = 2; d < x.dim(); ++d) others.push_back(d);
    const auto channels = [&](const Tensor& each) { return each.to(wide).reshape(along); };
    const Tensor centred = x - (mean.defined() ? channels(mean) : lockstep::mean(x, others, true));
    const Tensor spread =
        variance.defined() ? channels(variance) : lockstep::mean(square(centred), others, true);
    Tensor y = centred * rsqrt(spread + eps);
    if (in[1].defined()) y = y * channels(in[1]);
    if (in[2].defined()) y = y + channels(in[2]);
    if (in[3].defined()) y = y + in[3].to(wide);
    return passed.defined() ? where(passed, y, 0) : y;
  }
};

/// Hands over the gradients of a batch norm, recorded.
/// @param result saved where the call ended with ReLU
/// @param mean, variance undefined: those of the batch
void set_recorded(InputGradients& inputs, const Tensor& dy, const SavedTensor& x,
                  const SavedTensor& weight, const SavedTensor& result, double eps,
                  const Tensor& mean = {}, const Tensor& variance = {}) {
  const Tensor& y = result.get();
  set_composed(
      inputs, dy,
      {inputs.operand(0, x), inputs.operand(1, weight), unread_operand(inputs, 2, dy.device()),
       unread_operand(inputs, 3, dy.device())},
      ComposedBatchNorm{mean, variance, y.defined() ? logical_not(y <= 0.0) : Tensor(), eps});
}

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
      y, Differentiable{[relu = options.relu, eps = options.eps, x = SavedTensor(x),
                         weight = SavedTensor(weight), mean = SavedTensor(mean),
                         rstd = SavedTensor(rstd), behind = SavedRelu(call, options, y)](
                            const Tensor& dy_in, InputGradients& inputs) {
        if (inputs.creates_graph()) return set_recorded(inputs, dy_in, x, weight, behind.y, eps);
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
      }});
}

Tensor evaluate(const BatchNormCall& call, const Tensor& running_mean, const Tensor& running_var,
                const BatchNormOptions& options) {
  const Tensor x = image_of(call);
  const Tensor& weight = call[1];
  const Tensor y = normalised(call, x, running_mean, running_var, options);
  if (!call.recording()) return y;
  return call.record(
      y, Differentiable{[relu = options.relu, eps = options.eps, x = SavedTensor(x),
                         weight = SavedTensor(weight), mean = SavedTensor(running_mean),
                         var = SavedTensor(running_var), behind = SavedRelu(call, options, y)](
                            const Tensor& dy_in, InputGradients& inputs) {
        if (inputs.creates_graph())
          return set_recorded(inputs, dy_in, x, weight, behind.y, eps, mean.get(), var.get());
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
      }});
}

}  // namespace

Tensor autograd::counted_batch_norm(const Tensor& x, const Tensor& running_mean,
                                    const Tensor& running_var, const Tensor& num_batches_tracked,
                                    const Tensor& weight, const Tensor& bias,
                                    const BatchNormOptions& options, const Tensor& residual) {
  const OpCall call(ops::batch_norm, x, weight, bias, residual);
  check_batch_norm(call, running_mean, running_var, options);
  LOCKSTEP_CHECK(!options.training || x.numel() > x.size(1), InvalidArgument, call.name(),
                 ": training needs more than one value a channel, got shape ", x.shape(),
                 x.numel() == 0 ? "; a rank without samples takes part by SyncBatchNorm "
                                  "(nn::convert_sync_batchnorm), or is spared by drop_last"
                                : "");
  LOCKSTEP_CHECK(
      !num_batches_tracked.defined() ||
          (num_batches_tracked.dtype() == DType::i64 && num_batches_tracked.device() == x.device()),
      InvalidArgument, call.name(), ": num_batches_tracked is of ", num_batches_tracked.dtype(),
      " on ", num_batches_tracked.device(), "; it must be of i64 on ", x.device());
  Recomputation::note_choice("the mode of batch_norm", options.training ? 1 : 0);
  if (options.training) return train(call, running_mean, running_var, num_batches_tracked, options);
  return evaluate(call, running_mean, running_var, options);
}

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight, const Tensor& bias, const BatchNormOptions& options,
                  const Tensor& residual) {
  return counted_batch_norm(x, running_mean, running_var, {}, weight, bias, options, residual);
}

}  // namespace lockstep
