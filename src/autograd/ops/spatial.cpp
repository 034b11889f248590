#include "lockstep/autograd/ops/spatial.hpp"

#include "autograd/ops/composed.hpp"
#include "autograd/ops/images.hpp"
#include "autograd/ops/recorded.hpp"
#include "lockstep/autograd/ops/shape.hpp"

namespace lockstep {

LOCKSTEP_OP(adaptive_avg_pool1d, floating, follow, same)
LOCKSTEP_OP(adaptive_avg_pool2d, floating, follow, same)
LOCKSTEP_OP(avg_pool1d, floating, follow, same)
LOCKSTEP_OP(avg_pool2d, floating, follow, same)
LOCKSTEP_OP(max_pool1d, floating, follow, same)
LOCKSTEP_OP(max_pool2d, floating, follow, same)

namespace {

using namespace autograd;

std::int64_t pooled_extent(std::int64_t in, std::int64_t kernel, std::int64_t stride,
                           std::int64_t padding, bool ceil_mode) {
  LOCKSTEP_CHECK(
      kernel > 0 && stride > 0 && padding >= 0 && padding <= kernel / 2 &&
          std::max(kernel, stride) <= largest_extent,
      InvalidArgument, "pooling: kernel ", kernel, ", stride ", stride, ", padding ", padding,
      ": kernel and stride must be positive, and extents of images, padding at most half "
      "the kernel");
  const std::int64_t room = in + 2 * padding - kernel;
  const std::int64_t last = room + (ceil_mode ? stride - 1 : 0);  // where a window may start
  std::int64_t out = last < 0 ? 0 : last / stride + 1;
  // The last window must start inside the image or its left padding.
  if (ceil_mode && (out - 1) * stride >= in + padding) --out;
  LOCKSTEP_CHECK(out > 0, InvalidArgument, "pooling: a window of ", kernel,
                 " does not fit an extent of ", in, " with padding ", padding);
  return out;
}

/// @throws InvalidArgument for what is no image, or one without a pixel: no windows lie in it.
void check_pixels(std::string_view op, const Tensor& x) {
  check_image(op, x);
  LOCKSTEP_CHECK(x.size(2) > 0 && x.size(3) > 0, InvalidArgument, op, ": images of shape ",
                 x.shape(), " have no pixel to pool");
}

struct Pooling {
  kernels::PoolGeometry geometry;
  Shape shape;
};

Pooling pooling(std::string_view op, const Tensor& x, const Pool2dOptions& options) {
  check_pixels(op, x);
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

Tensor max_pool2d(const Tensor& x_in, const Pool2dOptions& options) {
  const OpCall call(ops::max_pool2d, x_in);
  const auto [geometry, shape] = pooling(call.name(), x_in, options);
  LOCKSTEP_CHECK(x_in.size(2) * x_in.size(3) <= INT32_MAX, Unsupported, call.name(),
                 ": images of shape ", x_in.shape(), " have more than ", INT32_MAX, " pixels");
  const Tensor x = image_of(call);
  const bool channels_last = !x.is_contiguous();
  Tensor y = empty_image(shape, x.options(), channels_last);
  const Tensor index = empty_image(shape, {DType::i32, x.device()}, channels_last);
  backend_of(x).pooling.max(
      {.y = y.view(), .index = index.view(), .x = x.view(), .geometry = geometry}, stream_of(x));
  if (!call.recording()) return y;
  const auto backward = [geometry = geometry, channels_last, index = SavedTensor(index)](
                            const Tensor& dy_in, InputGradients& inputs) {
    const auto back = [&](const Tensor& gradient) {
      const Tensor dy = ordered(gradient, channels_last);
      Tensor dx = empty_image(inputs.operand_shape(0), dy.options(), channels_last);
      backend_of(dy).pooling.max_backward(
          {.dx = dx.view(), .dy = dy.view(), .index = index.get().view(), .geometry = geometry},
          stream_of(dy));
      return dx;
    };
    const auto at_maxima = [index](const Tensor& ddx) {
      const Tensor places = index.get().to(DType::i64).flatten(2);
      return gather(ddx.flatten(2), 2, places).reshape(index.get().shape());
    };
    inputs.set(0, adjoint(inputs, ops::max_pool2d.name, dy_in, back, at_maxima));
  };
  return call.record(y, Differentiable{backward});
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
  const auto backward = [geometry, channels_last](const Tensor& dy_in, InputGradients& inputs) {
    const auto back = [&](const Tensor& gradient) {
      const Tensor dy = ordered(gradient, channels_last);
      Tensor dx = empty_image(inputs.operand_shape(0), dy.options(), channels_last);
      backend_of(dy).pooling.average_backward(
          {.dx = dx.view(), .dy = dy.view(), .geometry = geometry}, stream_of(dy));
      return dx;
    };
    inputs.set(0, adjoint(inputs, ops::avg_pool2d.name, dy_in, back,
                          [geometry, of = dy_in.shape()](const Tensor& ddx) {
                            return average_pool(OpCall(ops::avg_pool2d, ddx), geometry, of);
                          }));
  };
  return call.record(y, Differentiable{backward});
}

}  // namespace

Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options) {
  const OpCall call(ops::avg_pool2d, x);
  const auto [geometry, shape] = pooling(call.name(), x, options);
  return average_pool(call, geometry, shape);
}

Tensor adaptive_avg_pool2d(const Tensor& x, Size2d output) {
  const OpCall call(ops::adaptive_avg_pool2d, x);
  check_pixels(call.name(), x);
  LOCKSTEP_CHECK(output.height > 0 && output.width > 0, InvalidArgument, call.name(),
                 ": output size ", output.height, " x ", output.width, " must be positive");
  return average_pool(call, {.adaptive = true},
                      {x.size(0), x.size(1), output.height, output.width});
}

namespace {

/// Sequences as images of one row. @throws InvalidArgument for what is none.
Tensor as_image(std::string_view op, const Tensor& x) {
  LOCKSTEP_CHECK(x.dim() == 3, InvalidArgument, op, ": needs sequences [N, C, L], got shape ",
                 x.shape());
  return x.unsqueeze(2);
}

Pool2dOptions in_one_row(const Pool1dOptions& options) {
  return {.kernel = {1, options.kernel},
          .stride = {1, options.stride ? options.stride : options.kernel},
          .padding = {0, options.padding},
          .ceil_mode = options.ceil_mode,
          .count_include_pad = options.count_include_pad};
}

}  // namespace

Tensor max_pool1d(const Tensor& x, const Pool1dOptions& options) {
  const ComposedOp call(ops::max_pool1d, x);
  return max_pool2d(as_image(call.name(), x), in_one_row(options)).squeeze(2);
}

Tensor avg_pool1d(const Tensor& x, const Pool1dOptions& options) {
  const ComposedOp call(ops::avg_pool1d, x);
  return avg_pool2d(as_image(call.name(), x), in_one_row(options)).squeeze(2);
}

Tensor adaptive_avg_pool1d(const Tensor& x, std::int64_t output) {
  const ComposedOp call(ops::adaptive_avg_pool1d, x);
  LOCKSTEP_CHECK(output > 0, InvalidArgument, call.name(), ": output length ", output,
                 " must be positive");
  return adaptive_avg_pool2d(as_image(call.name(), x), {1, output}).squeeze(2);
}

}  // namespace lockstep
