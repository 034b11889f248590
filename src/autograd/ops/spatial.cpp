#include "lockstep/autograd/ops/spatial.hpp"

#include "autograd/ops/images.hpp"

namespace lockstep {
namespace {

using namespace autograd;

Shape conv_shape(const Tensor& x, const Tensor& weight, const Conv2dOptions& options) {
  check_image("conv2d", x);
  LOCKSTEP_CHECK(
      weight.dim() == 4 && options.groups > 0 && x.size(1) == weight.size(1) * options.groups &&
          weight.size(0) % options.groups == 0,
      InvalidArgument, "conv2d: input of shape ", x.shape(), " does not fit a weight of shape ",
      weight.shape(), " (out, in / groups, h, w) in ", options.groups, " groups");
  const auto extent = [&](int dim, std::int64_t stride, std::int64_t padding,
                          std::int64_t dilation) {
    LOCKSTEP_CHECK(stride > 0 && padding >= 0 && dilation > 0, InvalidArgument, "conv2d: stride ",
                   stride, ", padding ", padding, ", dilation ", dilation,
                   ": stride and dilation must be positive, padding not negative");
    const std::int64_t span = dilation * (weight.size(dim) - 1) + 1;
    const std::int64_t room = x.size(dim) + 2 * padding - span;
    LOCKSTEP_CHECK(room >= 0, InvalidArgument, "conv2d: a kernel of shape ", weight.shape(),
                   " does not fit an image of shape ", x.shape(), " with padding ", padding);
    return room / stride + 1;
  };
  return {x.size(0), weight.size(0),
          extent(2, options.stride.height, options.padding.height, options.dilation.height),
          extent(3, options.stride.width, options.padding.width, options.dilation.width)};
}

std::int64_t pooled_extent(std::int64_t in, std::int64_t kernel, std::int64_t stride,
                           std::int64_t padding, bool ceil_mode) {
  LOCKSTEP_CHECK(kernel > 0 && stride > 0 && padding >= 0 && 2 * padding <= kernel, InvalidArgument,
                 "pooling: kernel ", kernel, ", stride ", stride, ", padding ", padding,
                 ": kernel and stride must be positive, padding at most half the kernel");
  const std::int64_t room = in + 2 * padding - kernel;
  LOCKSTEP_CHECK(room >= 0 || ceil_mode, InvalidArgument, "pooling: a window of ", kernel,
                 " does not fit an extent of ", in, " with padding ", padding);
  std::int64_t out = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
  // The last window must start inside the image or its left padding.
  if (ceil_mode && (out - 1) * stride >= in + padding) --out;
  return out;
}

struct Pooling {
  kernels::PoolGeometry geometry;
  Shape shape;
};

Pooling pooling(std::string_view op, const Tensor& x, const Pool2dOptions& options) {
  check_image(op, x);
  const Size2d k = options.kernel, p = options.padding;
  const Size2d s{options.stride.height ? options.stride.height : k.height,
                 options.stride.width ? options.stride.width : k.width};
  return {{.kernel = pair(k),
           .stride = pair(s),
           .padding = pair(p),
           .count_include_pad = options.count_include_pad},
          {x.size(0), x.size(1),
           pooled_extent(x.size(2), k.height, s.height, p.height, options.ceil_mode),
           pooled_extent(x.size(3), k.width, s.width, p.width, options.ceil_mode)}};
}

}  // namespace

Tensor conv2d(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in,
              const Conv2dOptions& options) {
  const OpCall call(ops::conv2d, x_in, weight_in, bias_in);
  const Shape shape = conv_shape(x_in, weight_in, options);
  const Tensor& bias = call[2];
  LOCKSTEP_CHECK(!bias.defined() || bias.shape() == Shape{weight_in.size(0)}, InvalidArgument,
                 "conv2d: bias of shape ", bias.shape(), " does not fit ", weight_in.size(0),
                 " output channels");
  const kernels::ConvGeometry geometry{.stride = pair(options.stride),
                                       .padding = pair(options.padding),
                                       .dilation = pair(options.dilation),
                                       .groups = options.groups};
  const Tensor x = image_of(call, 0), weight = image_of(call, 1);
  const bool channels_last = !x.is_contiguous();
  Tensor y = empty_image(shape, x.options(), channels_last);
  backend_of(x).convolution.forward({.y = y.view(),
                                     .x = x.view(),
                                     .weight = weight.view(),
                                     .bias = view_or_absent(bias),
                                     .geometry = geometry},
                                    stream_of(x));
  if (!call.recording()) return y;
  return call.record(y, [geometry, channels_last, x = SavedTensor(x), weight = SavedTensor(weight)](
                            const Tensor& dy_in, InputGradients& inputs) {
    const Tensor &input = x.get(), &kernel = weight.get();
    const Tensor dy = ordered(dy_in, channels_last);
    const kernels::ConvolutionKernels& convolution = backend_of(dy).convolution;
    inputs.write(2, {kernel.size(0)}, gradient_options(inputs, 2, dy),
                 [&](const Tensor& db, bool accumulate) { bias_gradient(db, dy, accumulate); });
    inputs.write(1, kernel.shape(), dy.options(), [&](const Tensor& dw, bool accumulate) {
      if (dy.numel() == 0) return accumulate ? void() : void(Tensor(dw).zero_());
      convolution.backward_weight({.dweight = dw.view(),
                                   .dy = dy.view(),
                                   .x = input.view(),
                                   .geometry = geometry,
                                   .accumulate = accumulate},
                                  stream_of(dy));
    });
    if (!inputs.wanted(0)) return;
    Tensor dx = empty_like(input);
    convolution.backward_data(
        {.dx = dx.view(), .dy = dy.view(), .weight = kernel.view(), .geometry = geometry},
        stream_of(dy));
    inputs.set(0, std::move(dx));
  });
}

Tensor max_pool2d(const Tensor& x_in, const Pool2dOptions& options) {
  const OpCall call(ops::max_pool2d, x_in);
  const auto [geometry, shape] = pooling("max_pool2d", x_in, options);
  const Tensor x = image_of(call);
  const bool channels_last = !x.is_contiguous();
  Tensor y = empty_image(shape, x.options(), channels_last);
  const Tensor index = empty_image(shape, {DType::i64, x.device()}, channels_last);
  backend_of(x).pooling.max(
      {.y = y.view(), .index = index.view(), .x = x.view(), .geometry = geometry}, stream_of(x));
  if (!call.recording()) return y;
  return call.record(y, [geometry = geometry, channels_last, from = x.shape(),
                         index = SavedTensor(index)](const Tensor& dy_in, InputGradients& inputs) {
    const Tensor dy = ordered(dy_in, channels_last);
    Tensor dx = empty_image(from, dy.options(), channels_last);
    backend_of(dy).pooling.max_backward(
        {.dx = dx.view(), .dy = dy.view(), .index = index.get().view(), .geometry = geometry},
        stream_of(dy));
    inputs.set(0, std::move(dx));
  });
}

namespace {

/// The window mean of an op with one operand, whatever the windows.
Tensor average_pool(const OpCall<1>& call, const kernels::PoolGeometry& geometry,
                    const Shape& shape) {
  const Tensor x = image_of(call);
  const bool channels_last = !x.is_contiguous();
  Tensor y = empty_image(shape, x.options(), channels_last);
  backend_of(x).pooling.average({.y = y.view(), .x = x.view(), .geometry = geometry}, stream_of(x));
  if (!call.recording()) return y;
  return call.record(
      y, [geometry, channels_last, from = x.shape()](const Tensor& dy_in, InputGradients& inputs) {
        const Tensor dy = ordered(dy_in, channels_last);
        Tensor dx = empty_image(from, dy.options(), channels_last);
        backend_of(dy).pooling.average_backward(
            {.dx = dx.view(), .dy = dy.view(), .geometry = geometry}, stream_of(dy));
        inputs.set(0, std::move(dx));
      });
}

}  // namespace

Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options) {
  const OpCall call(ops::avg_pool2d, x);
  const auto [geometry, shape] = pooling("avg_pool2d", x, options);
  return average_pool(call, geometry, shape);
}

Tensor adaptive_avg_pool2d(const Tensor& x, Size2d output) {
  const OpCall call(ops::adaptive_avg_pool2d, x);
  check_image("adaptive_avg_pool2d", x);
  LOCKSTEP_CHECK(output.height > 0 && output.width > 0, InvalidArgument,
                 "adaptive_avg_pool2d: output size ", output.height, " x ", output.width,
                 " must be positive");
  return average_pool(call, {.adaptive = true},
                      {x.size(0), x.size(1), output.height, output.width});
}

}  // namespace lockstep
