#include "lockstep/parallel/sync_batch_norm.hpp"

#include <limits>
#include <memory>
#include <utility>

#include "autograd/ops/batch_norm_call.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/autograd/place.hpp"
#include "lockstep/autograd/recomputation.hpp"
#include "lockstep/parallel/stragglers.hpp"
#include "lockstep/parallel/tensor_work.hpp"
#include "parallel/checks.hpp"
#include "parallel/gradient_unit.hpp"

namespace lockstep::parallel {
namespace {

constexpr OpDescriptor sync_batch_norm_op{
    .name = "sync_batch_norm", .dtypes = DTypeRule::floating, .operands = OperandDTypes::own};

/// What a call is to the other ranks.
std::string label_of(const autograd::BatchNormCall& call, bool gradient_of_x, Communicator& group) {
  const std::string place = autograd::current_path();
  std::string label(call.name());
  if (call.recording()) label += lockstep::detail::concat(" #", group.take_number());
  if (gradient_of_x) label += " with a gradient of x";
  return place.empty() ? label : lockstep::detail::concat(label, " in ", place);
}

Tensor at_least_one(const Tensor& x) {
  return clamp(x, 1.0, std::numeric_limits<double>::infinity());
}

/// The result of a collective, for which other ranks are waited for: part of a step, if there is
/// one.
Tensor awaited(TensorWork work, const std::shared_ptr<StepTimes>& step) {
  if (step) step->add(work.work());
  return work.wait();
}

/// Sums of gradients over all ranks, in this rank's unit.
Tensor sum_over_ranks(const Tensor& own, Communicator& group, const std::string& label,
                      const std::shared_ptr<StepTimes>& step) {
  return exchanged_gradient(own, [&](const Tensor& sums) {
    return awaited(all_reduce_async(sums, group, comm::ReduceOp::sum(), "gradient of " + label),
                   step);
  });
}

/// Moments of the whole batch, [C].
struct Moments {
  Tensor mean, variance;  ///< of the statistics dtype; the variance biased
  Tensor unbiased;
  Tensor count;  ///< f64, of one element: values of a channel
};

/// Merges the ranks' moments, in f64 and on every rank in the same order.
Moments moments_of(const Tensor& x, Communicator& group, const std::string& label) {
  const NoGradGuard no_recording;
  const std::int64_t channels = x.size(1);
  const TensorOptions statistics{autograd::statistics_dtype(x.dtype()), x.device()};
  Tensor mean = zeros({channels}, statistics), variance = zeros({channels}, statistics);
  if (x.numel() > 0)
    autograd::backend_of(x).batch_norm.statistics(
        {.mean = mean.view(), .variance = variance.view(), .x = x.view()}, autograd::stream_of(x));
  const double own = channels == 0 ? 0.0 : static_cast<double>(x.numel() / channels);
  const Tensor count = full({1}, own, {DType::f64, x.device()});
  const Tensor own_moments = cat({count, mean.to(DType::f64), variance.to(DType::f64)}, 0);
  const Tensor all =
      awaited(all_gather_async(own_moments.reshape({1, 2 * channels + 1}), group, label),
              StepTimes::current());
  const Tensor counts = all.slice(1, 0, 1), means = all.slice(1, 1, channels + 1),
               variances = all.slice(1, channels + 1, 2 * channels + 1);
  Moments whole;
  whole.count = sum(counts, {0});
  const Tensor values = at_least_one(whole.count);
  const Tensor centre = sum(counts * means, {0}) / values;
  const Tensor squares = sum(counts * (variances + square(means - centre)), {0});
  whole.mean = centre.to(statistics.dtype);
  whole.variance = (squares / values).to(statistics.dtype);
  whole.unbiased = (squares / at_least_one(whole.count - 1.0)).to(statistics.dtype);
  return whole;
}

/// running += momentum * (batch - running)
void move(Tensor running, const Tensor& batch, double momentum) {
  if (!running.defined()) return;
  const NoGradGuard no_recording;
  running.add_(batch.to(running.dtype()) - running, momentum);
}

}  // namespace

Tensor sync_batch_norm(const Tensor& x_in, const Tensor& running_mean, const Tensor& running_var,
                       const Tensor& weight_in, const Tensor& bias_in,
                       const BatchNormOptions& options, const CommunicatorPtr& group,
                       const Tensor& residual_in) {
  using namespace autograd;
  if (!options.training)
    return batch_norm(x_in, running_mean, running_var, weight_in, bias_in, options, residual_in);
  Recomputation::note_choice("the mode of batch_norm", 1);
  LOCKSTEP_CHECK(group, InvalidArgument, sync_batch_norm_op.name, ": no group");
  check_on_device_of(sync_batch_norm_op.name, x_in, *group);
  const BatchNormCall call(sync_batch_norm_op, x_in, weight_in, bias_in, residual_in);
  check_batch_norm(call, running_mean, running_var, options);
  const std::string label = label_of(call, call.recording() && x_in.requires_grad(), *group);
  const Tensor x = image_of(call);
  const Moments batch = moments_of(x, *group, label);
  if (!Recomputation::is_running()) {
    move(running_mean, batch.mean, options.momentum);
    move(running_var, batch.unbiased, options.momentum);
  }
  const Tensor& weight = call[1];
  const Tensor y = normalised(call, x, batch.mean, batch.variance, options);
  if (!call.recording()) return y;
  return call.record(
      y, [group, label, step = StepTimes::current(), relu = options.relu, eps = options.eps,
          x = SavedTensor(x), weight = SavedTensor(weight), mean = SavedTensor(batch.mean),
          variance = SavedTensor(batch.variance), count = SavedTensor(batch.count),
          y = result_if(options.relu, y)](const Tensor& dy_in, InputGradients& inputs) {
        const Tensor& input = x.get();
        const std::int64_t channels = input.size(1);
        const Tensor dy = ordered(dy_in, !input.is_contiguous());
        BatchNormGradients gradients(inputs, input, relu);
        const Tensor sums = zeros({2, channels}, mean.get().options());
        const Tensor plain = sums[0], product = sums[1];
        const auto& kernels = backend_of(dy).batch_norm;
        const bool any = input.numel() > 0;
        if (any)
          kernels.gradient_sums({.dy_sum = plain.view(),
                                 .product_sum = product.view(),
                                 .dy = dy.view(),
                                 .x = input.view(),
                                 .mean = mean.get().view(),
                                 .variance = variance.get().view(),
                                 .eps = eps,
                                 .relu = relu_of(y, gradients)},
                                stream_of(dy));
        // On all ranks or on none: it is part of the label.
        if (inputs.wanted(0)) {
          const Tensor total = sum_over_ranks(sums, *group, label, step);
          const Tensor means = total / at_least_one(count.get()).to(total.dtype());
          if (any)
            kernels.input_gradient({.dx = gradients.dx.view(),
                                    .dy = relu ? gradients.dz.view() : dy.view(),
                                    .x = input.view(),
                                    .weight = view_or_absent(weight.get()),
                                    .mean = mean.get().view(),
                                    .variance = variance.get().view(),
                                    .dy_mean = means[0].view(),
                                    .product_mean = means[1].view(),
                                    .eps = eps},
                                   stream_of(dy));
        }
        inputs.set(1, product);
        inputs.set(2, plain);
        gradients.set(inputs, dy);
      });
}

}  // namespace lockstep::parallel
