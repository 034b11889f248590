#include "autograd/ops/composed.hpp"
#include "autograd/ops/images.hpp"
#include "autograd/ops/same_padding.hpp"
#include "lockstep/autograd/ops/reduce.hpp"
#include "lockstep/autograd/ops/shape.hpp"

// Sequences are images of height 1; conv_transpose2d is one with forward and the
// gradient of the input exchanged.

namespace lockstep {

LOCKSTEP_OP(conv1d, floating, lower_precision, same)
LOCKSTEP_OP(conv2d, floating, lower_precision, same)
LOCKSTEP_OP(conv_transpose1d, floating, lower_precision, same)
LOCKSTEP_OP(conv_transpose2d, floating, lower_precision, same)

namespace {

using namespace autograd;

Shape conv_shape(const Tensor& x, const Tensor& weight, const Conv2dOptions& options) {
  check_image(ops::conv2d.name, x);
  LOCKSTEP_CHECK(weight.dim() == 4 && options.groups > 0 &&
                     x.size(1) == weight.size(1) * options.groups &&
                     weight.size(0) % options.groups == 0,
                 InvalidArgument, ops::conv2d.name, ": input of shape ", x.shape(),
                 " does not fit a weight of shape ", weight.shape(),
                 " (out, in / groups, h, w) in ", options.groups, " groups");
  const auto extent = [&](int dim, std::int64_t stride, std::int64_t padding,
                          std::int64_t dilation) {
    LOCKSTEP_CHECK(stride > 0 && padding >= 0 && dilation > 0 &&
                       std::max({stride, padding, dilation}) <= largest_extent,
                   InvalidArgument, ops::conv2d.name, ": stride ", stride, ", padding ", padding,
                   ", dilation ", dilation,
                   ": stride and dilation must be positive, padding not negative, and all extents "
                   "of images");
    const std::int64_t span = dilation * (weight.size(dim) - 1) + 1;
    const std::int64_t room = x.size(dim) + 2 * padding - span;
    LOCKSTEP_CHECK(room >= 0, InvalidArgument, ops::conv2d.name, ": a kernel of shape ",
                   weight.shape(), " does not fit an image of shape ", x.shape(), " with padding ",
                   padding);
    return room / stride + 1;
  };
  return {x.size(0), weight.size(0),
          extent(2, options.stride.height, options.padding.height, options.dilation.height),
          extent(3, options.stride.width, options.padding.width, options.dilation.width)};
}

/// Extent of the result along one dimension.
struct TransposedAxis {
  std::int64_t in, kernel, stride, padding, output_padding, dilation;
  std::string_view op = ops::conv_transpose2d.name;  // in messages

  std::int64_t out() const {
    LOCKSTEP_CHECK(stride > 0 && padding >= 0 && dilation > 0 && output_padding >= 0 &&
                       output_padding < std::max(stride, dilation) &&
                       std::max({stride, padding, dilation}) <= largest_extent,
                   InvalidArgument, op, ": stride ", stride, ", padding ", padding,
                   ", output padding ", output_padding, ", dilation ", dilation,
                   ": stride and dilation must be positive, the paddings not negative, the output "
                   "padding below stride or dilation, and all extents of images");
    return (in - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1;
  }
  /// Zeros behind the input that stand for whole steps of output padding.
  std::int64_t more_inputs() const { return output_padding / stride; }
};

std::array<TransposedAxis, 2> axes_of(const Tensor& x, const Tensor& weight,
                                      const ConvTranspose2dOptions& o) {
  return {{{x.size(2), weight.size(2), o.stride.height, o.padding.height, o.output_padding.height,
            o.dilation.height},
           {x.size(3), weight.size(3), o.stride.width, o.padding.width, o.output_padding.width,
            o.dilation.width}}};
}

Shape transposed_shape(const Tensor& x, const Tensor& weight, const Tensor& bias,
                       const ConvTranspose2dOptions& options) {
  check_image(ops::conv_transpose2d.name, x);
  LOCKSTEP_CHECK(weight.dim() == 4 && options.groups > 0 && x.size(1) == weight.size(0) &&
                     x.size(1) % options.groups == 0,
                 InvalidArgument, ops::conv_transpose2d.name, ": input of shape ", x.shape(),
                 " does not fit a weight of shape ", weight.shape(),
                 " (in, out / groups, h, w) in ", options.groups, " groups");
  const std::int64_t channels = weight.size(1) * options.groups;
  LOCKSTEP_CHECK(!bias.defined() || bias.shape() == Shape{channels}, InvalidArgument,
                 ops::conv_transpose2d.name, ": bias of shape ", bias.shape(), " does not fit ",
                 channels, " output channels");
  const auto [height, width] = axes_of(x, weight, options);
  LOCKSTEP_CHECK(height.in > 0 && width.in > 0 && height.out() > 0 && width.out() > 0,
                 InvalidArgument, ops::conv_transpose2d.name, ": an image of shape ", x.shape(),
                 " with a kernel of shape ", weight.shape(), " gives no position (", height.out(),
                 " x ", width.out(), ")");
  return {x.size(0), channels, height.out(), width.out()};
}

/// Adds a bias to each channel.
void add_bias(const Tensor& y, const Tensor& bias) {
  ArrayView wide = bias.view();
  wide.shape = y.shape();
  wide.strides = {0, bias.strides()[0], 0, 0};
  backend_of(y).elementwise.binary({.op = BinaryOp::add, .out = y.view(), .a = y.view(), .b = wide},
                                   stream_of(y));
}

kernels::ConvGeometry geometry_of(const auto& options) {
  return {.stride = pair(options.stride),
          .padding = pair(options.padding),
          .dilation = pair(options.dilation),
          .groups = options.groups};
}

/// The gradient of operand 2 where that of the result is `dy`.
void write_bias_gradient(InputGradients& inputs, const Tensor& dy) {
  inputs.write(2, {dy.size(1)}, gradient_options(inputs, 2, dy),
               [&](const Tensor& db, bool accumulate) { bias_gradient(db, dy, accumulate); });
}

/// The gradient of the weight of a convolution from images like `x` to ones like `dy`.
void run_weight(const Tensor& out, const Tensor& x, const Tensor& dy,
                const kernels::ConvGeometry& geometry, bool accumulate) {
  if (x.numel() == 0 || dy.numel() == 0) return accumulate ? void() : void(Tensor(out).zero_());
  backend_of(dy).convolution.backward_weight({.dweight = out.view(),
                                              .dy = dy.view(),
                                              .x = x.view(),
                                              .geometry = geometry,
                                              .accumulate = accumulate},
                                             stream_of(dy));
}
/// The same for operand 1.
void write_weight_gradient(InputGradients& inputs, const Tensor& weight, const Tensor& x,
                           const Tensor& dy, const kernels::ConvGeometry& geometry) {
  inputs.write(
      1, weight.shape(), gradient_options(inputs, 1, dy),
      [&](const Tensor& dw, bool accumulate) { run_weight(dw, x, dy, geometry, accumulate); });
}

/// Convolutions along and against their direction, which write `out`. Without a channel on the
/// other side no term is added up: 0, which not every library writes.
void run_forward(const Tensor& out, const Tensor& x, const Tensor& weight, const Tensor& bias,
                 const kernels::ConvGeometry& geometry) {
  if (x.numel() == 0 || weight.numel() == 0) {
    Tensor(out).zero_();
    if (bias.defined()) add_bias(out, bias);
    return;
  }
  backend_of(x).convolution.forward({.y = out.view(),
                                     .x = x.view(),
                                     .weight = weight.view(),
                                     .bias = view_or_absent(bias),
                                     .geometry = geometry},
                                    stream_of(x));
}
void run_backward(const Tensor& out, const Tensor& dy, const Tensor& weight,
                  const kernels::ConvGeometry& geometry, bool accumulate = false) {
  if (dy.numel() == 0 || weight.numel() == 0)
    return accumulate ? void() : void(Tensor(out).zero_());
  backend_of(dy).convolution.backward_data({.dx = out.view(),
                                            .dy = dy.view(),
                                            .weight = weight.view(),
                                            .geometry = geometry,
                                            .accumulate = accumulate},
                                           stream_of(dy));
}

constexpr OpDescriptor recorded_convolution{.name = ops::conv2d.name};

/// A convolution from x to y and its gradients as recorded ops. Linear in x, y and the weight, each
/// follows from the other two; its own gradients are such again.
struct RecordedConvolution {
  kernels::ConvGeometry geometry;
  Shape x_shape, y_shape, weight_shape;
  bool channels_last;

  Tensor to_y(const Tensor& x, const Tensor& weight) const {
    return record(
        x, weight, image(y_shape, x), dense_image,
        [this](const Tensor& out, const Tensor& from, const Tensor& kernel) {
          run_forward(out, from, kernel, {}, geometry);
        },
        [of = *this](const Tensor& dy, const Tensor& from, const Tensor& kernel,
                     InputGradients& inputs) {
          if (inputs.wanted(0)) inputs.set(0, of.to_x(dy, kernel));
          if (inputs.wanted(1)) inputs.set(1, of.to_weight(from, dy));
        });
  }
  Tensor to_x(const Tensor& y, const Tensor& weight) const {
    return record(
        y, weight, image(x_shape, y), dense_image,
        [this](const Tensor& out, const Tensor& from, const Tensor& kernel) {
          run_backward(out, from, kernel, geometry);
        },
        [of = *this](const Tensor& dx, const Tensor& from, const Tensor& kernel,
                     InputGradients& inputs) {
          if (inputs.wanted(0)) inputs.set(0, of.to_y(dx, kernel));
          if (inputs.wanted(1)) inputs.set(1, of.to_weight(dx, from));
        });
  }
  Tensor to_weight(const Tensor& x, const Tensor& y) const {
    return record(
        x, y, empty(weight_shape, x.options()),
        [this](const Tensor& image) { return ordered_image(image); },
        [this](const Tensor& out, const Tensor& from, const Tensor& to) {
          run_weight(out, from, to, geometry, false);
        },
        [of = *this](const Tensor& dw, const Tensor& from, const Tensor& to,
                     InputGradients& inputs) {
          if (inputs.wanted(0)) inputs.set(0, of.to_x(to, dw));
          if (inputs.wanted(1)) inputs.set(1, of.to_y(from, dw));
        });
  }

 private:
  Tensor image(const Shape& shape, const Tensor& like) const {
    return empty_image(shape, like.options(), channels_last);
  }
  Tensor ordered_image(const Tensor& x) const { return ordered(x, channels_last); }
  /// @param dense_b as kernels take the second operand: an image, or a weight in its own order
  template <class Dense, class Run, class Gradients>
  Tensor record(const Tensor& a_in, const Tensor& b_in, Tensor out, const Dense& dense_b,
                const Run& run, Gradients gradients) const {
    const OpCall call(recorded_convolution, a_in, b_in);
    const Tensor a = no_grad([&] { return ordered_image(call[0]); });
    const Tensor b = no_grad([&] { return dense_b(call[1]); });
    run(out, a, b);
    if (!call.recording()) return out;
    const auto backward = [gradients = std::move(gradients), a = SavedTensor(a),
                           b = SavedTensor(b)](const Tensor& dout, InputGradients& inputs) {
      gradients(dout, inputs.operand(0, a), inputs.operand(1, b), inputs);
    };
    return call.record(std::move(out), Differentiable{backward});
  }
};

/// Records a convolution from x to y. A transposed one is, forward and backward, that from y to x.
Tensor record_convolution(const OpCall<3>& call, Tensor y, const Tensor& x, const Tensor& weight,
                          const kernels::ConvGeometry& geometry, bool is_transposed) {
  const auto backward = [geometry, is_transposed, channels_last = !x.is_contiguous(),
                         x = SavedTensor(x), weight = SavedTensor(weight)](const Tensor& dy_in,
                                                                           InputGradients& inputs) {
    const Tensor &input = x.get(), &kernel = weight.get();
    if (inputs.creates_graph()) {
      const Tensor from = inputs.operand(0, x), taps = inputs.operand(1, weight);
      const RecordedConvolution of{geometry, is_transposed ? dy_in.shape() : input.shape(),
                                   is_transposed ? input.shape() : dy_in.shape(), kernel.shape(),
                                   channels_last};
      if (inputs.wanted(2)) inputs.set(2, sum(dy_in, {0, 2, 3}));
      if (inputs.wanted(1))
        inputs.set(1, is_transposed ? of.to_weight(dy_in, from) : of.to_weight(from, dy_in));
      if (inputs.wanted(0))
        inputs.set(0, is_transposed ? of.to_y(dy_in, taps) : of.to_x(dy_in, taps));
      return;
    }
    const Tensor dy = ordered(dy_in, channels_last);
    write_bias_gradient(inputs, dy);
    write_weight_gradient(inputs, kernel, is_transposed ? dy : input, is_transposed ? input : dy,
                          geometry);
    if (!is_transposed)
      return inputs.write_like(0, input, [&](const Tensor& dx, bool accumulate) {
        run_backward(dx, dy, kernel, geometry, accumulate);
      });
    if (!inputs.wanted(0)) return;
    Tensor dx = empty_like(input);
    run_forward(dx, dy, kernel, {}, geometry);
    inputs.set(0, std::move(dx));
  };
  return call.record(std::move(y), Differentiable{backward});
}

/// A convolution of `same_padding`: a zero more at the end is one of the input.
Tensor conv2d_of_same_extents(const Tensor& x, const Tensor& weight, const Tensor& bias,
                              Conv2dOptions options) {
  check_image(ops::conv2d.name, x);
  LOCKSTEP_CHECK(weight.dim() == 4, InvalidArgument, ops::conv2d.name,
                 ": needs weights [out, C / groups, KH, KW], got shape ", weight.shape());
  const auto rows = padded_sides(ops::conv2d.name, options.padding.height, weight.size(2),
                                 options.stride.height, options.dilation.height);
  const auto columns = padded_sides(ops::conv2d.name, options.padding.width, weight.size(3),
                                    options.stride.width, options.dilation.width);
  options.padding = {rows.before, columns.before};
  const std::int64_t more[] = {0, columns.after - columns.before, 0, rows.after - rows.before};
  return conv2d(more[1] || more[3] ? pad(x, more) : x, weight, bias, options);
}

/// What images of height 1 would be refused for, in the words of sequences.
void check_sequences(const Tensor& x, const Tensor& weight, const Conv1dOptions& o) {
  const std::string_view name = ops::conv1d.name;
  LOCKSTEP_CHECK(
      o.groups > 0 && x.size(1) == weight.size(1) * o.groups && weight.size(0) % o.groups == 0,
      InvalidArgument, name, ": input of shape ", x.shape(), " does not fit a weight of shape ",
      weight.shape(), " (out, in / groups, k) in ", o.groups, " groups");
  LOCKSTEP_CHECK(o.stride > 0 && (o.padding >= 0 || o.padding == same_padding) && o.dilation > 0 &&
                     std::max({o.stride, o.padding, o.dilation}) <= largest_extent,
                 InvalidArgument, name, ": stride ", o.stride, ", padding ", o.padding,
                 ", dilation ", o.dilation,
                 ": stride and dilation must be positive, padding not negative, and all lengths of "
                 "sequences");
  if (o.padding == same_padding) return;
  LOCKSTEP_CHECK(x.size(2) + 2 * o.padding > o.dilation * (weight.size(2) - 1), InvalidArgument,
                 name, ": a kernel of shape ", weight.shape(), " with dilation ", o.dilation,
                 " does not fit sequences of shape ", x.shape(), " with padding ", o.padding);
}

/// The same for those that are made longer.
void check_sequences(const Tensor& x, const Tensor& weight, const ConvTranspose1dOptions& o) {
  const std::string_view name = ops::conv_transpose1d.name;
  LOCKSTEP_CHECK(o.groups > 0 && x.size(1) == weight.size(0) && x.size(1) % o.groups == 0,
                 InvalidArgument, name, ": input of shape ", x.shape(),
                 " does not fit a weight of shape ", weight.shape(), " (in, out / groups, k) in ",
                 o.groups, " groups");
  const TransposedAxis axis{x.size(2),        weight.size(2), o.stride, o.padding,
                            o.output_padding, o.dilation,     name};
  LOCKSTEP_CHECK(axis.in > 0, InvalidArgument, name, ": sequences of shape ", x.shape(),
                 " have no elements");
  LOCKSTEP_CHECK(axis.out() > 0, InvalidArgument, name, ": sequences of shape ", x.shape(),
                 " with a kernel of shape ", weight.shape(), ", stride ", o.stride, " and padding ",
                 o.padding, " give none (of length ", axis.out(), ")");
}

}  // namespace

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
              const Conv1dOptions& options) {
  const ComposedOp call(ops::conv1d);
  check_operand(ops::conv1d, x);
  LOCKSTEP_CHECK(x.dim() == 3 && weight.dim() == 3, InvalidArgument, call.name(),
                 ": needs sequences [N, C, L] and weights [out, C / groups, K], got shapes ",
                 x.shape(), " and ", weight.shape());
  check_sequences(x, weight, options);
  return conv2d(x.unsqueeze(2), weight.unsqueeze(2), bias,
                {.stride = {1, options.stride},
                 .padding = {0, options.padding},
                 .dilation = {1, options.dilation},
                 .groups = options.groups})
      .squeeze(2);
}

Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias,
                        const ConvTranspose1dOptions& options) {
  const ComposedOp call(ops::conv_transpose1d);
  check_operand(ops::conv_transpose1d, x);
  LOCKSTEP_CHECK(x.dim() == 3 && weight.dim() == 3, InvalidArgument, call.name(),
                 ": needs sequences [N, C, L] and weights [C, out / groups, K], got shapes ",
                 x.shape(), " and ", weight.shape());
  check_sequences(x, weight, options);
  return conv_transpose2d(x.unsqueeze(2), weight.unsqueeze(2), bias,
                          {.stride = {1, options.stride},
                           .padding = {0, options.padding},
                           .output_padding = {0, options.output_padding},
                           .dilation = {1, options.dilation},
                           .groups = options.groups})
      .squeeze(2);
}

Tensor conv2d(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in,
              const Conv2dOptions& options) {
  if (options.padding.height == same_padding || options.padding.width == same_padding)
    return conv2d_of_same_extents(x_in, weight_in, bias_in, options);
  const OpCall call(ops::conv2d, x_in, weight_in, bias_in);
  const Shape shape = conv_shape(x_in, weight_in, options);
  const Tensor& bias = call[2];
  LOCKSTEP_CHECK(!bias.defined() || bias.shape() == Shape{weight_in.size(0)}, InvalidArgument,
                 call.name(), ": bias of shape ", bias.shape(), " does not fit ", weight_in.size(0),
                 " output channels");
  const kernels::ConvGeometry geometry = geometry_of(options);
  const Tensor x = image_of(call, 0), weight = image_of(call, 1);
  const bool channels_last = !x.is_contiguous();
  Tensor y = empty_image(shape, x.options(), channels_last);
  run_forward(y, x, weight, bias, geometry);
  if (!call.recording()) return y;
  return record_convolution(call, std::move(y), x, weight, geometry, false);
}

Tensor conv_transpose2d(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in,
                        const ConvTranspose2dOptions& options) {
  const Shape shape = transposed_shape(x_in, weight_in, bias_in, options);
  const auto [vertical, horizontal] = axes_of(x_in, weight_in, options);
  if (vertical.more_inputs() || horizontal.more_inputs()) {
    // Beyond a stride, output padding lets the last taps of further inputs in, which are 0.
    ConvTranspose2dOptions rest = options;
    rest.output_padding = {vertical.output_padding % vertical.stride,
                           horizontal.output_padding % horizontal.stride};
    const std::int64_t more[] = {0, horizontal.more_inputs(), 0, vertical.more_inputs()};
    return conv_transpose2d(pad(x_in, more), weight_in, bias_in, rest);
  }
  const OpCall call(ops::conv_transpose2d, x_in, weight_in, bias_in);
  const kernels::ConvGeometry geometry = geometry_of(options);
  const Tensor x = image_of(call, 0), weight = image_of(call, 1);
  const bool channels_last = !x.is_contiguous();
  Tensor y = empty_image(shape, x.options(), channels_last);
  run_backward(y, x, weight, geometry);
  if (call[2].defined()) add_bias(y, call[2]);
  if (!call.recording()) return y;
  return record_convolution(call, std::move(y), x, weight, geometry, true);
}

}  // namespace lockstep
