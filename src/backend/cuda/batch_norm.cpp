#include "cuda/batch_norm.hpp"

#include <limits>

#include "arguments/batch_norm.hpp"
#include "arguments/elementwise.hpp"
#include "cuda/scratch.hpp"

namespace lockstep::cuda_kernels {
namespace {

/// An array [C] of the accumulation type that lives for one call.
class ChannelArray {
 public:
  ChannelArray(const ArrayView& x, StreamRef stream, std::int64_t rows = 1)
      : dtype_(x.dtype == DType::f64 ? DType::f64 : DType::f32),
        channels_(x.shape[1]),
        scratch_(static_cast<std::size_t>(rows * channels_) * size_of(dtype_), stream) {}

  ArrayView view(std::int64_t row = 0) const {
    auto* const data = static_cast<std::byte*>(scratch_.data()) +
                       row * channels_ * static_cast<std::int64_t>(size_of(dtype_));
    return {data, dtype_, {channels_}, {1}};
  }

 private:
  DType dtype_;
  std::int64_t channels_;
  Scratch scratch_;
};

/// A parameter in the accumulation type: the array itself, a converted copy, or a constant where
/// it is absent.
class Parameter {
 public:
  Parameter(const ArrayView& given, double absent, const ArrayView& x, StreamRef stream)
      : copy_(x, stream), view_(copy_.view()) {
    if (!given)
      elementwise::fill({.out = view_, .value = absent}, stream);
    else if (given.dtype == view_.dtype)
      view_ = given;
    else
      elementwise::copy({.out = view_, .in = given}, stream);
  }
  const ArrayView& view() const { return view_; }

 private:
  ChannelArray copy_;
  ArrayView view_;
};

/// An array [C] seen in the shape of x.
ArrayView over(const ArrayView& per_channel, const ArrayView& x) {
  ArrayView wide = per_channel;
  wide.shape = x.shape;
  wide.strides = Strides::filled(x.rank(), 0);
  wide.strides[1] = per_channel.strides[0];
  return wide;
}

double count_of(const ArrayView& x) {
  return static_cast<double>(x.numel()) / static_cast<double>(x.shape[1]);
}

template <class Arguments>
void apply(const Arguments& a, const ArrayView& mean, const ArrayView& rstd, StreamRef stream) {
  const ArrayView& x = a.x;
  const Parameter scale(a.weight, 1.0, x, stream);
  const Parameter offset(a.bias, 0.0, x, stream);
  normalise({.y = a.y,
             .x = x,
             .mean = over(mean, x),
             .rstd = over(rstd, x),
             .weight = over(scale.view(), x),
             .bias = over(offset.view(), x),
             .residual = a.residual,
             .relu = a.relu},
            stream);
}

/// Gradients of both modes, with mean and rstd as [C] and the `count` of values behind them.
template <class Arguments>
void backward(const Arguments& a, const ArrayView& mean, const ArrayView& rstd, double count,
              StreamRef stream) {
  const ArrayView& x = a.x;
  const Scratch scratch(channel_scratch_bytes(x), stream);
  const ChannelArray sums(x, stream, 2);
  channel_gradient_sums(sums.view(), a.dy, x, mean, rstd, a.relu, scratch.data(), stream);
  if (a.dbias) elementwise::copy({.out = a.dbias, .in = sums.view(0)}, stream);
  if (a.dweight) elementwise::copy({.out = a.dweight, .in = sums.view(1)}, stream);
  if (!a.dx) return;
  const Parameter scale(a.weight, 1.0, x, stream);
  normalise_backward({.dx = a.dx,
                      .dy = a.relu.y ? a.relu.dz : a.dy,
                      .x = x,
                      .mean = over(mean, x),
                      .rstd = over(rstd, x),
                      .weight = over(scale.view(), x),
                      .sum = over(sums.view(0), x),
                      .product_sum = over(sums.view(1), x),
                      .count = count},
                     stream);
}

}  // namespace

void batch_norm::train(const kernels::BatchNormTrainArguments& a, StreamRef stream) {
  const ArrayView& x = a.x;
  const Scratch scratch(channel_scratch_bytes(x), stream);
  const ChannelArray mean(x, stream);
  const ChannelArray variance(x, stream);
  const ChannelArray rstd(x, stream);
  channel_mean(mean.view(), x, scratch.data(), stream);
  channel_variance(variance.view(), mean.view(), x, scratch.data(), stream);
  inverse_deviation(rstd.view(), variance.view(), a.eps, stream);
  const double count = count_of(x);
  if (a.running_mean) move_running(a.running_mean, mean.view(), a.momentum, 1.0, stream);
  if (a.running_var)
    move_running(a.running_var, variance.view(), a.momentum, count / (count - 1.0), stream);
  elementwise::copy({.out = a.save_mean, .in = mean.view()}, stream);
  elementwise::copy({.out = a.save_rstd, .in = rstd.view()}, stream);
  apply(a, mean.view(), rstd.view(), stream);
}

void batch_norm::eval(const kernels::BatchNormEvalArguments& a, StreamRef stream) {
  const Parameter mean(a.running_mean, 0.0, a.x, stream);
  const Parameter variance(a.running_var, 1.0, a.x, stream);
  const ChannelArray rstd(a.x, stream);
  inverse_deviation(rstd.view(), variance.view(), a.eps, stream);
  apply(a, mean.view(), rstd.view(), stream);
}

void batch_norm::train_backward(const kernels::BatchNormTrainBackwardArguments& a,
                                StreamRef stream) {
  const Parameter mean(a.save_mean, 0.0, a.x, stream);
  const Parameter rstd(a.save_rstd, 1.0, a.x, stream);
  backward(a, mean.view(), rstd.view(), count_of(a.x), stream);
}

void batch_norm::eval_backward(const kernels::BatchNormEvalBackwardArguments& a, StreamRef stream) {
  const Parameter mean(a.running_mean, 0.0, a.x, stream);
  const Parameter variance(a.running_var, 1.0, a.x, stream);
  const ChannelArray rstd(a.x, stream);
  inverse_deviation(rstd.view(), variance.view(), a.eps, stream);
  // Fixed statistics pass nothing back: as if a channel had infinitely many elements.
  backward(a, mean.view(), rstd.view(), std::numeric_limits<double>::infinity(), stream);
}

void batch_norm::statistics(const kernels::BatchNormStatisticsArguments& a, StreamRef stream) {
  const Scratch scratch(channel_scratch_bytes(a.x), stream);
  channel_mean(a.mean, a.x, scratch.data(), stream);
  channel_variance(a.variance, a.mean, a.x, scratch.data(), stream);
}

void batch_norm::gradient_sums(const kernels::BatchNormGradientSumsArguments& a, StreamRef stream) {
  const Scratch scratch(channel_scratch_bytes(a.x), stream);
  const ChannelArray rstd(a.x, stream), sums(a.x, stream, 2);
  inverse_deviation(rstd.view(), a.variance, a.eps, stream);
  channel_gradient_sums(sums.view(), a.dy, a.x, a.mean, rstd.view(), a.relu, scratch.data(),
                        stream);
  elementwise::copy({.out = a.dy_sum, .in = sums.view(0)}, stream);
  elementwise::copy({.out = a.product_sum, .in = sums.view(1)}, stream);
}

void batch_norm::input_gradient(const kernels::BatchNormInputGradientArguments& a,
                                StreamRef stream) {
  const ChannelArray rstd(a.x, stream);
  inverse_deviation(rstd.view(), a.variance, a.eps, stream);
  const Parameter scale(a.weight, 1.0, a.x, stream);
  normalise_backward({.dx = a.dx,
                      .dy = a.dy,
                      .x = a.x,
                      .mean = over(a.mean, a.x),
                      .rstd = over(rstd.view(), a.x),
                      .weight = over(scale.view(), a.x),
                      .sum = over(a.dy_mean, a.x),
                      .product_sum = over(a.product_mean, a.x)},
                     stream);
}

}  // namespace lockstep::cuda_kernels
