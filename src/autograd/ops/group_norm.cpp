#include "autograd/ops/common.hpp"
#include "autograd/ops/composed.hpp"
#include "autograd/ops/recorded.hpp"
#include "lockstep/autograd/ops/norm.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/reduce.hpp"

/// @file
/// Group norm by the parts of batch norm: statistics of groups, and all else of channels, each
/// group or channel of an image being a channel of one image. In f32 and f64 small planes, and all
/// on a GPU, where each part is a launch, go by layer norm: 16 bits would be rounded three times
/// then.

namespace lockstep {

LOCKSTEP_OP(group_norm, floating, f32, same)

namespace {

using namespace autograd;

struct Groups {
  std::int64_t images, channels, groups;

  std::int64_t of_all() const { return images * groups; }
  /// x, contiguous, as one image of so many channels.
  static ArrayView parts(const Tensor& x, std::int64_t count) {
    const std::int64_t size = x.numel() / count;
    return {x.data_ptr(), x.dtype(), {1, count, size}, {count * size, size, 1}};
  }
  ArrayView by_group(const Tensor& x) const { return parts(x, of_all()); }
  ArrayView by_channel(const Tensor& x) const { return parts(x, images * channels); }
  /// A value a group as one a channel of each image.
  Tensor spread(const Tensor& values) const {
    return values.reshape({of_all(), 1})
        .expand({of_all(), channels / groups})
        .reshape({images * channels});
  }
  /// A parameter, in the statistics dtype, for each image; undefined if it is.
  Tensor repeated(const Tensor& parameter, DType dtype) const {
    if (!parameter.defined()) return {};
    return parameter.to(dtype).expand({images, channels}).reshape({images * channels});
  }
  /// Means over groups of sums over channels.
  Tensor means(const Tensor& sums, const Tensor& weight, std::int64_t count) const {
    const Tensor weighted = weight.defined() ? mul(sums, weight) : sums;
    return sum(weighted.reshape({of_all(), channels / groups}), {1}) / static_cast<double>(count);
  }
};

Tensor by_layer_norm(const Tensor& x, const Groups& of, const Tensor& weight, const Tensor& bias,
                     double eps);

struct GroupNormBackward {
  static constexpr bool is_differentiable = true;
  Groups of;
  double eps;
  SavedTensor x, weight, mean, variance;

  void operator()(const Tensor& dy_in, InputGradients& inputs) const {
    const Tensor& input = x.get();
    if (inputs.creates_graph())
      return set_composed(
          inputs, dy_in,
          {inputs.operand(0, x), inputs.operand(1, weight),
           unread_operand(inputs, 2, input.device())},
          [&](std::span<const Tensor> in) { return by_layer_norm(in[0], of, in[1], in[2], eps); });
    const Tensor dy = dy_in.contiguous();
    const TensorOptions statistics = mean.get().options();
    const Tensor dy_sum = empty({of.images * of.channels}, statistics);
    const Tensor product_sum = empty({of.images * of.channels}, statistics);
    const Tensor channel_mean = of.spread(mean.get()), channel_variance = of.spread(variance.get());
    backend_of(dy).batch_norm.gradient_sums({.dy_sum = dy_sum.view(),
                                             .product_sum = product_sum.view(),
                                             .dy = of.by_channel(dy),
                                             .x = of.by_channel(input),
                                             .mean = channel_mean.view(),
                                             .variance = channel_variance.view(),
                                             .eps = eps},
                                            stream_of(dy));
    const auto over_images = [&](const Tensor& sums) {
      return sum(sums.reshape({of.images, of.channels}), {0}).to(dy.dtype());
    };
    if (inputs.wanted(1)) inputs.set(1, over_images(product_sum));
    if (inputs.wanted(2)) inputs.set(2, over_images(dy_sum));
    if (inputs.wanted(0)) inputs.set(0, input_gradient(dy, dy_sum, product_sum));
  }

 private:
  Tensor input_gradient(const Tensor& dy, const Tensor& dy_sum, const Tensor& product_sum) const {
    const Tensor& input = x.get();
    Shape along = Dims::filled(input.dim(), 1);
    along[1] = of.channels;
    const Tensor factors = of.repeated(weight.get(), dy_sum.dtype());
    Tensor dx = weight.get().defined() ? mul(dy, weight.get().reshape(along))
                                       : empty(input.shape(), input.options());
    const std::int64_t count = input.numel() / of.of_all();
    const Tensor dy_mean = of.means(dy_sum, factors, count);
    const Tensor product_mean = of.means(product_sum, factors, count);
    backend_of(dy).batch_norm.input_gradient({.dx = of.by_group(dx),
                                              .dy = of.by_group(weight.get().defined() ? dx : dy),
                                              .x = of.by_group(input),
                                              .mean = mean.get().view(),
                                              .variance = variance.get().view(),
                                              .dy_mean = dy_mean.view(),
                                              .product_mean = product_mean.view(),
                                              .eps = eps},
                                             stream_of(dy));
    return dx;
  }
};

/// A kernel's work for a shorter plane would cost as much as the plane.
constexpr std::int64_t least_plane = 64;

Tensor by_layer_norm(const Tensor& x, const Groups& of, const Tensor& weight, const Tensor& bias,
                     double eps) {
  const std::int64_t per_group = x.numel() / std::max<std::int64_t>(1, of.of_all());
  Shape along = Dims::filled(x.dim(), 1);
  along[1] = of.channels;
  Tensor y =
      layer_norm(x.reshape({of.of_all(), per_group}), {per_group}, {}, {}, eps).reshape(x.shape());
  if (weight.defined()) y = y * weight.reshape(along);
  if (bias.defined()) y = y + bias.reshape(along);
  return y;
}

Tensor by_planes(const Groups& of, const Tensor& x_in, const Tensor& weight_in,
                 const Tensor& bias_in, double eps) {
  const OpCall call(ops::group_norm, x_in, weight_in, bias_in);
  const Tensor x = call.dense(0), weight = call.dense(1), bias = call.dense(2);
  const TensorOptions statistics{statistics_dtype(x.dtype()), x.device()};
  const Tensor mean = empty({of.of_all()}, statistics), variance = empty({of.of_all()}, statistics);
  const Tensor y = empty(x.shape(), x.options());
  no_grad([&] {
    backend_of(x).batch_norm.statistics(
        {.mean = mean.view(), .variance = variance.view(), .x = of.by_group(x)}, stream_of(x));
    const Tensor channel_mean = of.spread(mean), channel_variance = of.spread(variance),
                 scale = of.repeated(weight, statistics.dtype),
                 shift = of.repeated(bias, statistics.dtype);
    backend_of(x).batch_norm.eval({.y = of.by_channel(y),
                                   .running_mean = channel_mean.view(),
                                   .running_var = channel_variance.view(),
                                   .x = of.by_channel(x),
                                   .weight = view_or_absent(scale),
                                   .bias = view_or_absent(shift),
                                   .eps = eps},
                                  stream_of(x));
  });
  if (!call.recording()) return y;
  return call.record(y, GroupNormBackward{of, eps, SavedTensor(x), SavedTensor(weight),
                                          SavedTensor(mean), SavedTensor(variance)});
}

}  // namespace

Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight, const Tensor& bias,
                  double eps) {
  LOCKSTEP_CHECK(x.dim() >= 2 && groups > 0 && x.size(1) % groups == 0, InvalidArgument,
                 ops::group_norm.name, ": ", groups, " groups do not divide the channels of shape ",
                 x.shape());
  for (const Tensor& parameter : {weight, bias})
    LOCKSTEP_CHECK(!parameter.defined() || parameter.shape() == Shape{x.size(1)}, InvalidArgument,
                   ops::group_norm.name, ": weight or bias of shape ", parameter.shape(), " for ",
                   x.size(1), " channels");
  const Groups of{x.size(0), x.size(1), groups};
  const bool is_large = x.device().is_cpu() && x.numel() >= least_plane * of.images * of.channels;
  const bool in_16_bits = size_of(x.dtype()) < 4 && !thread_modes.autocast;  // which gives f32
  if (x.numel() > 0 && (is_large || in_16_bits)) return by_planes(of, x, weight, bias, eps);
  const ComposedOp call(ops::group_norm, x, weight, bias);
  return by_layer_norm(call[0], of, call[1], call[2], eps);
}

}  // namespace lockstep
