#include <cmath>

#include "autograd/ops/images.hpp"
#include "autograd/ops/recorded.hpp"

namespace lockstep {

LOCKSTEP_OP(interpolate, floating, f32, same)

namespace {

using namespace autograd;

InterpolationAxis axis_of(std::int64_t in, std::int64_t size, double factor,
                          const InterpolateOptions& options) {
  const bool scaled = size == 0;
  const auto out =
      scaled
          ? static_cast<std::int64_t>(std::floor(static_cast<double>(in) * std::max(factor, 0.0)))
          : size;
  LOCKSTEP_CHECK(in > 0 && out > 0, InvalidArgument, ops::interpolate.name, ": an extent of ", in,
                 " cannot become ", out, " (size ", size, ", scale factor ", factor,
                 "); both must be at least 1");
  // Where the factor gives the extent exactly, it is the quotient of both, which does not round.
  const bool exact = !scaled || static_cast<double>(in) * factor == static_cast<double>(out);
  return {.in = in,
          .out = out,
          .step = exact ? 0.0 : 1.0 / factor,
          .linear = options.mode == InterpolationMode::bilinear,
          .align_corners = options.align_corners};
}

void check_options(const InterpolateOptions& options) {
  const bool sized = options.size.height != 0 || options.size.width != 0;
  const bool scaled = options.scale_factor.height != 0 || options.scale_factor.width != 0;
  LOCKSTEP_CHECK(sized != scaled, InvalidArgument, ops::interpolate.name,
                 ": give either size or scale_factor", sized ? ", not both" : "");
  LOCKSTEP_CHECK(!options.align_corners || options.mode == InterpolationMode::bilinear,
                 InvalidArgument, ops::interpolate.name,
                 ": align_corners belongs to the mode bilinear");
}

Tensor resized(const OpCall<1>& call, const InterpolationAxis& height,
               const InterpolationAxis& width) {
  const Tensor x = image_of(call);
  const bool channels_last = !x.is_contiguous();
  Tensor y = empty_image({x.size(0), x.size(1), height.out, width.out}, x.options(), channels_last);
  backend_of(x).interpolation.forward(
      {.y = y.view(), .x = x.view(), .height = height, .width = width}, stream_of(x));
  if (!call.recording()) return y;
  const auto backward = [height, width, channels_last](const Tensor& dy_in,
                                                       InputGradients& inputs) {
    const auto back = [&](const Tensor& gradient) {
      const Tensor dy = ordered(gradient, channels_last);
      Tensor dx = empty_image(inputs.operand_shape(0), dy.options(), channels_last);
      backend_of(dy).interpolation.backward(
          {.dx = dx.view(), .dy = dy.view(), .height = height, .width = width}, stream_of(dy));
      return dx;
    };
    inputs.set(
        0, adjoint(inputs, ops::interpolate.name, dy_in, back, [height, width](const Tensor& ddx) {
          return resized(OpCall(ops::interpolate, ddx), height, width);
        }));
  };
  return call.record(y, Differentiable{backward});
}

}  // namespace

Tensor interpolate(const Tensor& x_in, const InterpolateOptions& options) {
  const OpCall call(ops::interpolate, x_in);
  check_image(call.name(), x_in);
  check_options(options);
  const auto height =
      axis_of(x_in.size(2), options.size.height, options.scale_factor.height, options);
  const auto width = axis_of(x_in.size(3), options.size.width, options.scale_factor.width, options);
  return resized(call, height, width);
}

}  // namespace lockstep
