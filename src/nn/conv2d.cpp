#include "lockstep/nn/conv2d.hpp"

#include "autograd/ops/same_padding.hpp"
#include "lockstep/nn/init.hpp"
#include "nn/describe.hpp"

namespace lockstep::nn {
namespace {

/// Above and below, or left and right.
autograd::PaddedSides sides_of(const Conv2dOptions& options, std::int64_t Size2d::*along) {
  return autograd::padded_sides("Conv2d", options.padding.*along, options.kernel.*along,
                                options.stride.*along, options.dilation.*along);
}

const Conv2dOptions& checked(const Conv2dOptions& options) {
  check_channels("Conv2d", options.in, options.out, options.groups, options.kernel);
  for (const auto along : {&Size2d::height, &Size2d::width}) (void)sides_of(options, along);
  return options;
}

Shape weight_shape(const Conv2dOptions& options) {
  return {options.out, options.in / options.groups, options.kernel.height, options.kernel.width};
}

}  // namespace

Conv2d::Conv2d(const Conv2dOptions& options)
    : options_(checked(options)),
      weight(this, "weight", init::layer_weight(weight_shape(options), options.tensor)),
      bias(this, "bias", init::layer_bias(weight, options.bias)) {}

Tensor Conv2d::padded(const Tensor& x) const {
  if (options_.padding_mode == PaddingMode::constant) return x;
  const auto [above, below] = sides_of(options_, &Size2d::height);
  const auto [left, right] = sides_of(options_, &Size2d::width);
  return pad(x, {left, right, above, below}, options_.padding_mode);
}

Tensor Conv2d::forward(const Tensor& x) const {
  const bool zeros = options_.padding_mode == PaddingMode::constant;
  return conv2d(padded(x), weight, bias,
                {.stride = options_.stride,
                 .padding = zeros ? options_.padding : 0,
                 .dilation = options_.dilation,
                 .groups = options_.groups});
}

std::string Conv2d::describe() const { return describe_convolution(options_); }

}  // namespace lockstep::nn
