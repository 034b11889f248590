#pragma once

#include "autograd/ops/common.hpp"
#include "lockstep/autograd/ops/norm.hpp"

/// @file
/// What the ways to normalise a batch share, whether its statistics come from one process or from
/// several.

namespace lockstep::autograd {

/// Operands: x, weight, bias, residual.
using BatchNormCall = OpCall<4>;

/// @throws InvalidArgument for operands that do not fit together.
inline void check_batch_norm(const BatchNormCall& call, const Tensor& running_mean,
                             const Tensor& running_var, const BatchNormOptions& options) {
  const Tensor &x = call[0], &weight = call[1], &bias = call[2];
  LOCKSTEP_CHECK(x.dim() >= 2, InvalidArgument, call.name(), ": needs a shape [N, C, ...], got ",
                 x.shape());
  for (const Tensor& parameter : {running_mean, running_var, weight, bias}) {
    LOCKSTEP_CHECK(!parameter.defined() || parameter.shape() == Shape{x.size(1)}, InvalidArgument,
                   call.name(), ": an input of shape ", x.shape(), " has ", x.size(1),
                   " channels (its second dimension), and a parameter is of shape ",
                   parameter.shape(), "; give it [N, C, ...] with as many channels as the layer");
    LOCKSTEP_CHECK(!parameter.defined() || parameter.device() == x.device(), InvalidArgument,
                   call.name(), ": input is on ", x.device(), ", a parameter elsewhere");
  }
  LOCKSTEP_CHECK(options.training || (running_mean.defined() && running_var.defined()),
                 InvalidArgument, call.name(), ": evaluation needs running_mean and running_var");
  const Tensor& residual = call[3];
  if (!residual.defined()) return;
  check_alike(call.name(), x, residual);
  LOCKSTEP_CHECK(residual.shape() == x.shape(), InvalidArgument, call.name(),
                 ": the residual has shape ", residual.shape(), ", the input ", x.shape(),
                 "; they must be alike");
}

/// x in dense memory.
inline Tensor image_of(const BatchNormCall& call) {
  return no_grad([&] { return dense_image(call[0]); });
}

/// The residual in the order of x's memory, absent if it is.
inline Tensor residual_of(const BatchNormCall& call, const Tensor& x) {
  if (!call[3].defined()) return {};
  return no_grad([&] { return ordered(call[3], !x.is_contiguous()); });
}

/// The result by given statistics, [C]. @param x of image_of.
inline Tensor normalised(const BatchNormCall& call, const Tensor& x, const Tensor& mean,
                         const Tensor& variance, const BatchNormOptions& options) {
  const Tensor residual = residual_of(call, x);
  Tensor y = empty_like(x);
  if (x.numel() == 0) return y;
  backend_of(x).batch_norm.eval({.y = y.view(),
                                 .running_mean = mean.view(),
                                 .running_var = variance.view(),
                                 .x = x.view(),
                                 .weight = view_or_absent(call[1]),
                                 .bias = view_or_absent(call[2]),
                                 .eps = options.eps,
                                 .residual = view_or_absent(residual),
                                 .relu = options.relu},
                                stream_of(x));
  return y;
}

/// Lets `run(dweight, dbias)` compute the parameters' gradients, undefined where not wanted, where
/// they are kept, and hands them over.
template <class Run>
void write_parameter_gradients(InputGradients& inputs, const Tensor& dy, const Run& run) {
  const auto part = [&](std::size_t i) {
    return GradientPart{i, {dy.size(1)}, {inputs.operand_dtype(i), dy.device()}};
  };
  inputs.write_together(
      std::array{part(1), part(2)}, [&](const std::array<GradientTarget, 2>& targets) {
        std::array<Tensor, 2> written;
        for (std::size_t i = 0; i < 2; ++i)
          written[i] = targets[i].accumulate ? empty_like(targets[i].tensor) : targets[i].tensor;
        run(written[0], written[1]);
        for (std::size_t i = 0; i < 2; ++i)
          if (targets[i].accumulate) Tensor(targets[i].tensor).add_(written[i]);
      });
}

/// What the gradients of all ways to normalise have in common: the arrays of x's size.
struct BatchNormGradients {
  Tensor dx;
  Tensor dz;  ///< in front of ReLU, where the call ended with it

  BatchNormGradients(const InputGradients& inputs, const Tensor& x, bool relu)
      : dx(inputs.wanted(0) ? empty_like(x) : Tensor()) {
    // dx may be computed where dz was, unless the residual's gradient is to stay.
    if (relu) dz = dx.defined() && !inputs.wanted(3) ? dx : empty_like(x);
  }
  /// Hands them to x and the residual. @param dy the result's.
  void set(InputGradients& inputs, const Tensor& dy) const {
    if (inputs.wanted(3)) inputs.set(3, dz.defined() ? dz : dy);
    inputs.set(0, dx);
  }
};

/// The result as backward reads it: absent where it does not.
inline SavedTensor result_if(bool relu, const Tensor& y) {
  return relu ? SavedTensor::of_result(y) : SavedTensor(Tensor());
}

/// ReLU's part of a backward call, absent without it. @param y what the forward call saved.
inline kernels::BatchNormRelu relu_of(const SavedTensor& y, const BatchNormGradients& gradients) {
  if (!gradients.dz.defined()) return {};
  return {.y = y.get().view(), .dz = gradients.dz.view()};
}

/// The same for a forward call that is known whole.
struct SavedRelu {
  bool has_residual;
  SavedTensor y, bias;

  SavedRelu(const BatchNormCall& call, const BatchNormOptions& options, const Tensor& result)
      : has_residual(call[3].defined()),
        y(result_if(options.relu, result)),
        bias(options.relu && !has_residual ? call[2] : Tensor()) {}
  kernels::BatchNormRelu view(const BatchNormGradients& gradients) const {
    kernels::BatchNormRelu relu = relu_of(y, gradients);
    relu.has_residual = has_residual;
    relu.bias = view_or_absent(bias.get());
    return relu;
  }
};

}  // namespace lockstep::autograd
