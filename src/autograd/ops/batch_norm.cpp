#include "autograd/ops/common.hpp"
#include "lockstep/autograd/ops/norm.hpp"
#include "lockstep/autograd/recomputation.hpp"

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

/// @throws InvalidArgument unless a residual is as x is.
void check_residual(const Tensor& x, const Tensor& residual) {
  if (!residual.defined()) return;
  check_alike(ops::batch_norm.name, x, residual);
  LOCKSTEP_CHECK(residual.shape() == x.shape(), InvalidArgument, ops::batch_norm.name,
                 ": the residual has shape ", residual.shape(), ", the input ", x.shape(),
                 "; they must be alike");
}

using Call = OpCall<4>;

Tensor image_of(const Call& call) {
  return no_grad([&] { return dense_image(call[0]); });
}

/// The residual in the order of x's memory, absent if it is.
Tensor residual_of(const Call& call, const Tensor& x) {
  if (!call[3].defined()) return {};
  return no_grad([&] { return ordered(call[3], !x.is_contiguous()); });
}

/// What both modes' gradients have in common: the arrays to write.
struct Gradients {
  Tensor dx, dweight, dbias;
  Tensor dz;  ///< in front of ReLU, where the call ended with it

  Gradients(const InputGradients& inputs, const Tensor& x, const Tensor& dy, bool relu);
  /// Hands them to the operands. @param dy the result's.
  void set(InputGradients& inputs, const Tensor& dy) const;
};

/// A gradient for an operand of one value a channel, in the operand's own dtype; undefined where
/// not wanted.
Tensor empty_gradient(const InputGradients& inputs, std::size_t i, const Tensor& dy) {
  if (!inputs.wanted(i)) return {};
  return empty({dy.size(1)}, {inputs.operand_dtype(i), dy.device()});
}

Gradients::Gradients(const InputGradients& inputs, const Tensor& x, const Tensor& dy, bool relu)
    : dx(inputs.wanted(0) ? empty_like(x) : Tensor()),
      dweight(empty_gradient(inputs, 1, dy)),
      dbias(empty_gradient(inputs, 2, dy)) {
  // dx may be computed where dz was, unless the residual's gradient is to stay.
  if (relu) dz = dx.defined() && !inputs.wanted(3) ? dx : empty_like(x);
}

void Gradients::set(InputGradients& inputs, const Tensor& dy) const {
  inputs.set(1, dweight);
  inputs.set(2, dbias);
  if (inputs.wanted(3)) inputs.set(3, dz.defined() ? dz : dy);
  inputs.set(0, dx);
}

/// ReLU's part of a backward call, absent without it. @param y what the forward call saved.
kernels::BatchNormRelu relu_of(const SavedTensor& y, const Gradients& gradients) {
  if (!gradients.dz.defined()) return {};
  return {.y = y.get().view(), .dz = gradients.dz.view()};
}

/// The result as backward reads it: absent where it does not.
SavedTensor result_if(bool relu, const Tensor& y) {
  return relu ? SavedTensor::of_result(y) : SavedTensor(Tensor());
}

Tensor train(const Call& call, const Tensor& running_mean, const Tensor& running_var,
             const BatchNormOptions& options) {
  const Tensor x = image_of(call);
  const Tensor &weight = call[1], &bias = call[2], residual = residual_of(call, x);
  const TensorOptions statistics{statistics_dtype(x.dtype()), x.device()};
  const Tensor mean = empty({x.size(1)}, statistics), rstd = empty({x.size(1)}, statistics);
  Tensor y = empty_like(x);
  const bool moves = !Recomputation::is_running();  // they moved in the first run
  for (const Tensor& running : {running_mean, running_var})
    if (moves && running.defined()) begin_write(ops::batch_norm.name, running);
  backend_of(x).batch_norm.train({.y = y.view(),
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
                                  .relu = options.relu},
                                 stream_of(x));
  if (!call.recording()) return y;
  return call.record(
      y, [relu = options.relu, x = SavedTensor(x), weight = SavedTensor(weight),
          mean = SavedTensor(mean), rstd = SavedTensor(rstd),
          y = result_if(options.relu, y)](const Tensor& dy_in, InputGradients& inputs) {
        const Tensor& input = x.get();
        const Tensor dy = ordered(dy_in, !input.is_contiguous());
        const Gradients gradients(inputs, input, dy, relu);
        backend_of(dy).batch_norm.train_backward({.dx = view_or_absent(gradients.dx),
                                                  .dweight = view_or_absent(gradients.dweight),
                                                  .dbias = view_or_absent(gradients.dbias),
                                                  .dy = dy.view(),
                                                  .x = input.view(),
                                                  .weight = view_or_absent(weight.get()),
                                                  .save_mean = mean.get().view(),
                                                  .save_rstd = rstd.get().view(),
                                                  .relu = relu_of(y, gradients)},
                                                 stream_of(dy));
        gradients.set(inputs, dy);
      });
}

Tensor evaluate(const Call& call, const Tensor& running_mean, const Tensor& running_var,
                const BatchNormOptions& options) {
  const Tensor x = image_of(call);
  const Tensor &weight = call[1], &bias = call[2], residual = residual_of(call, x);
  Tensor y = empty_like(x);
  backend_of(x).batch_norm.eval({.y = y.view(),
                                 .running_mean = running_mean.view(),
                                 .running_var = running_var.view(),
                                 .x = x.view(),
                                 .weight = view_or_absent(weight),
                                 .bias = view_or_absent(bias),
                                 .eps = options.eps,
                                 .residual = view_or_absent(residual),
                                 .relu = options.relu},
                                stream_of(x));
  if (!call.recording()) return y;
  return call.record(
      y, [relu = options.relu, eps = options.eps, x = SavedTensor(x), weight = SavedTensor(weight),
          mean = SavedTensor(running_mean), var = SavedTensor(running_var),
          y = result_if(options.relu, y)](const Tensor& dy_in, InputGradients& inputs) {
        const Tensor& input = x.get();
        const Tensor dy = ordered(dy_in, !input.is_contiguous());
        const Gradients gradients(inputs, input, dy, relu);
        backend_of(dy).batch_norm.eval_backward({.dx = view_or_absent(gradients.dx),
                                                 .dweight = view_or_absent(gradients.dweight),
                                                 .dbias = view_or_absent(gradients.dbias),
                                                 .dy = dy.view(),
                                                 .x = input.view(),
                                                 .weight = view_or_absent(weight.get()),
                                                 .running_mean = mean.get().view(),
                                                 .running_var = var.get().view(),
                                                 .eps = eps,
                                                 .relu = relu_of(y, gradients)},
                                                stream_of(dy));
        gradients.set(inputs, dy);
      });
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight, const Tensor& bias, const BatchNormOptions& options,
                  const Tensor& residual) {
  const OpCall call(ops::batch_norm, x, weight, bias, residual);
  check_batch_norm(x, running_mean, running_var, weight, bias, options);
  check_residual(call[0], call[3]);
  if (options.training) return train(call, running_mean, running_var, options);
  return evaluate(call, running_mean, running_var, options);
}

}  // namespace lockstep
