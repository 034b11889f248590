#include "autograd/ops/common.hpp"
#include "backend/spatial.hpp"
#include "lockstep/autograd/ops/norm.hpp"

namespace lockstep {
namespace {

using namespace autograd;

void check_batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                      const Tensor& weight, const Tensor& bias, const BatchNormOptions& options) {
  check_floating("batch_norm", x);
  LOCKSTEP_CHECK(x.dim() >= 2, InvalidArgument, "batch_norm: needs a shape [N, C, ...], got ",
                 x.shape());
  for (const Tensor& parameter : {running_mean, running_var, weight, bias}) {
    LOCKSTEP_CHECK(!parameter.defined() || parameter.shape() == Shape{x.size(1)}, InvalidArgument,
                   "batch_norm: a parameter has shape ", parameter.shape(), ", expected [",
                   x.size(1), "], one a channel");
    LOCKSTEP_CHECK(!parameter.defined() || parameter.device() == x.device(), InvalidArgument,
                   "batch_norm: input is on ", x.device(), ", a parameter elsewhere");
  }
  LOCKSTEP_CHECK(options.training || (running_mean.defined() && running_var.defined()),
                 InvalidArgument, "batch_norm: evaluation needs running_mean and running_var");
  LOCKSTEP_CHECK(!options.training || x.numel() > x.size(1), InvalidArgument,
                 "batch_norm: training needs more than one value a channel, got shape ", x.shape());
}

/// The dtype of the bias' gradient, which may differ from the weight's and the data's.
DType dtype_of_bias(const Tensor& bias, const Tensor& x) {
  return bias.defined() ? bias.dtype() : x.dtype();
}

Tensor train(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
             const Tensor& weight, const Tensor& bias, const BatchNormOptions& options) {
  const TensorOptions statistics{statistics_dtype(x.dtype()), x.device()};
  const Tensor mean = empty({x.size(1)}, statistics), rstd = empty({x.size(1)}, statistics);
  Tensor y = empty_like(x);
  for (const Tensor& running : {running_mean, running_var})
    if (running.defined()) begin_write("batch_norm", running);
  backend_of(x).batch_norm->train(y.view(), mean.view(), rstd.view(), view_or_absent(running_mean),
                                  view_or_absent(running_var), x.view(), view_or_absent(weight),
                                  view_or_absent(bias), options.momentum, options.eps,
                                  stream_of(x));
  if (!recording(x, weight, bias)) return y;
  return record(
      "batch_norm", y,
      [x = SavedTensor(x), weight = SavedTensor(weight), mean = SavedTensor(mean),
       rstd = SavedTensor(rstd),
       bias_dtype = dtype_of_bias(bias, x)](const Tensor& dy_in, InputGradients& inputs) {
        const Tensor &input = x.get("batch_norm"), &scale = weight.get("batch_norm");
        const Tensor dy = ordered(dy_in, !input.is_contiguous());
        const Tensor dx = inputs.wanted(0) ? empty_like(input) : Tensor();
        const Shape channels{input.size(1)};
        const Tensor dw = inputs.wanted(1) ? empty(channels, scale.options()) : Tensor();
        const Tensor db = inputs.wanted(2) ? empty(channels, {bias_dtype, dy.device()}) : Tensor();
        backend_of(dy).batch_norm->train_backward(
            view_or_absent(dx), view_or_absent(dw), view_or_absent(db), dy.view(), input.view(),
            view_or_absent(scale), mean.get("batch_norm").view(), rstd.get("batch_norm").view(),
            stream_of(dy));
        inputs.set(1, dw);
        inputs.set(2, db);
        inputs.set(0, dx);
      },
      x, weight, bias);
}

Tensor evaluate(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                const Tensor& weight, const Tensor& bias, double eps) {
  Tensor y = empty_like(x);
  backend_of(x).batch_norm->eval(y.view(), running_mean.view(), running_var.view(), x.view(),
                                 view_or_absent(weight), view_or_absent(bias), eps, stream_of(x));
  if (!recording(x, weight, bias)) return y;
  return record(
      "batch_norm", y,
      [eps, x = SavedTensor(x), weight = SavedTensor(weight), mean = SavedTensor(running_mean),
       var = SavedTensor(running_var),
       bias_dtype = dtype_of_bias(bias, x)](const Tensor& dy_in, InputGradients& inputs) {
        const Tensor &input = x.get("batch_norm"), &scale = weight.get("batch_norm");
        const Tensor dy = ordered(dy_in, !input.is_contiguous());
        const Tensor dx = inputs.wanted(0) ? empty_like(input) : Tensor();
        const Shape channels{input.size(1)};
        const Tensor dw = inputs.wanted(1) ? empty(channels, scale.options()) : Tensor();
        const Tensor db = inputs.wanted(2) ? empty(channels, {bias_dtype, dy.device()}) : Tensor();
        backend_of(dy).batch_norm->eval_backward(
            view_or_absent(dx), view_or_absent(dw), view_or_absent(db), dy.view(), input.view(),
            view_or_absent(scale), mean.get("batch_norm").view(), var.get("batch_norm").view(), eps,
            stream_of(dy));
        inputs.set(1, dw);
        inputs.set(2, db);
        inputs.set(0, dx);
      },
      x, weight, bias);
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight, const Tensor& bias, const BatchNormOptions& options) {
  check_batch_norm(x, running_mean, running_var, weight, bias, options);
  const Tensor image = dense_image(x);
  if (options.training) return train(image, running_mean, running_var, weight, bias, options);
  return evaluate(image, running_mean, running_var, weight, bias, options.eps);
}

}  // namespace lockstep
