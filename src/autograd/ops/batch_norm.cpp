#include "autograd/ops/common.hpp"
#include "lockstep/autograd/ops/norm.hpp"

namespace lockstep {

LOCKSTEP_OP(batch_norm, floating, follow, own)

namespace {

using namespace autograd;

void check_batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                      const Tensor& weight, const Tensor& bias, const BatchNormOptions& options) {
  LOCKSTEP_CHECK(x.dim() >= 2, InvalidArgument, ops::batch_norm.name,
                 ": needs a shape [N, C, ...], got ", x.shape());
  for (const Tensor& parameter : {running_mean, running_var, weight, bias}) {
    LOCKSTEP_CHECK(!parameter.defined() || parameter.shape() == Shape{x.size(1)}, InvalidArgument,
                   ops::batch_norm.name, ": a parameter has shape ", parameter.shape(),
                   ", expected [", x.size(1), "], one a channel");
    LOCKSTEP_CHECK(!parameter.defined() || parameter.device() == x.device(), InvalidArgument,
                   ops::batch_norm.name, ": input is on ", x.device(), ", a parameter elsewhere");
  }
  LOCKSTEP_CHECK(options.training || (running_mean.defined() && running_var.defined()),
                 InvalidArgument, ops::batch_norm.name,
                 ": evaluation needs running_mean and running_var");
  LOCKSTEP_CHECK(!options.training || x.numel() > x.size(1), InvalidArgument, ops::batch_norm.name,
                 ": training needs more than one value a channel, got shape ", x.shape());
}

Tensor image_of(const OpCall<3>& call) {
  return no_grad([&] { return dense_image(call[0]); });
}

/// A gradient for an operand of one value a channel, in the operand's own dtype; undefined where
/// not wanted.
Tensor empty_gradient(const InputGradients& inputs, std::size_t i, const Tensor& dy) {
  if (!inputs.wanted(i)) return {};
  return empty({dy.size(1)}, {inputs.operand_dtype(i), dy.device()});
}

Tensor train(const OpCall<3>& call, const Tensor& running_mean, const Tensor& running_var,
             const BatchNormOptions& options) {
  const Tensor x = image_of(call);
  const Tensor &weight = call[1], &bias = call[2];
  const TensorOptions statistics{statistics_dtype(x.dtype()), x.device()};
  const Tensor mean = empty({x.size(1)}, statistics), rstd = empty({x.size(1)}, statistics);
  Tensor y = empty_like(x);
  for (const Tensor& running : {running_mean, running_var})
    if (running.defined()) begin_write(ops::batch_norm.name, running);
  backend_of(x).batch_norm.train({.y = y.view(),
                                  .save_mean = mean.view(),
                                  .save_rstd = rstd.view(),
                                  .running_mean = view_or_absent(running_mean),
                                  .running_var = view_or_absent(running_var),
                                  .x = x.view(),
                                  .weight = view_or_absent(weight),
                                  .bias = view_or_absent(bias),
                                  .momentum = options.momentum,
                                  .eps = options.eps},
                                 stream_of(x));
  if (!call.recording()) return y;
  return call.record(y, [x = SavedTensor(x), weight = SavedTensor(weight), mean = SavedTensor(mean),
                         rstd = SavedTensor(rstd)](const Tensor& dy_in, InputGradients& inputs) {
    const Tensor &input = x.get(), &scale = weight.get();
    const Tensor dy = ordered(dy_in, !input.is_contiguous());
    const Tensor dx = inputs.wanted(0) ? empty_like(input) : Tensor();
    const Tensor dw = empty_gradient(inputs, 1, dy), db = empty_gradient(inputs, 2, dy);
    backend_of(dy).batch_norm.train_backward({.dx = view_or_absent(dx),
                                              .dweight = view_or_absent(dw),
                                              .dbias = view_or_absent(db),
                                              .dy = dy.view(),
                                              .x = input.view(),
                                              .weight = view_or_absent(scale),
                                              .save_mean = mean.get().view(),
                                              .save_rstd = rstd.get().view()},
                                             stream_of(dy));
    inputs.set(1, dw);
    inputs.set(2, db);
    inputs.set(0, dx);
  });
}

Tensor evaluate(const OpCall<3>& call, const Tensor& running_mean, const Tensor& running_var,
                double eps) {
  const Tensor x = image_of(call);
  const Tensor &weight = call[1], &bias = call[2];
  Tensor y = empty_like(x);
  backend_of(x).batch_norm.eval({.y = y.view(),
                                 .running_mean = running_mean.view(),
                                 .running_var = running_var.view(),
                                 .x = x.view(),
                                 .weight = view_or_absent(weight),
                                 .bias = view_or_absent(bias),
                                 .eps = eps},
                                stream_of(x));
  if (!call.recording()) return y;
  return call.record(
      y, [eps, x = SavedTensor(x), weight = SavedTensor(weight), mean = SavedTensor(running_mean),
          var = SavedTensor(running_var)](const Tensor& dy_in, InputGradients& inputs) {
        const Tensor &input = x.get(), &scale = weight.get();
        const Tensor dy = ordered(dy_in, !input.is_contiguous());
        const Tensor dx = inputs.wanted(0) ? empty_like(input) : Tensor();
        const Tensor dw = empty_gradient(inputs, 1, dy), db = empty_gradient(inputs, 2, dy);
        backend_of(dy).batch_norm.eval_backward({.dx = view_or_absent(dx),
                                                 .dweight = view_or_absent(dw),
                                                 .dbias = view_or_absent(db),
                                                 .dy = dy.view(),
                                                 .x = input.view(),
                                                 .weight = view_or_absent(scale),
                                                 .running_mean = mean.get().view(),
                                                 .running_var = var.get().view(),
                                                 .eps = eps},
                                                stream_of(dy));
        inputs.set(1, dw);
        inputs.set(2, db);
        inputs.set(0, dx);
      });
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight, const Tensor& bias, const BatchNormOptions& options) {
  const OpCall call(ops::batch_norm, x, weight, bias);
  check_batch_norm(x, running_mean, running_var, weight, bias, options);
  if (options.training) return train(call, running_mean, running_var, options);
  return evaluate(call, running_mean, running_var, options.eps);
}

}  // namespace lockstep
