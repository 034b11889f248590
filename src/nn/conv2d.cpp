#include "lockstep/nn/conv2d.hpp"

#include "lockstep/nn/init.hpp"
#include "nn/describe.hpp"

namespace lockstep::nn {
namespace {

const Conv2dOptions& checked(const Conv2dOptions& options) {
  check_channels("Conv2d", options.in, options.out, options.groups, options.kernel);
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

Tensor Conv2d::forward(const Tensor& x) const {
  return conv2d(x, weight, bias,
                {.stride = options_.stride,
                 .padding = options_.padding,
                 .dilation = options_.dilation,
                 .groups = options_.groups});
}

std::string Conv2d::describe() const { return describe_convolution(options_); }

}  // namespace lockstep::nn
