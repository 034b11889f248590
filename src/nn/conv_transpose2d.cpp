#include "lockstep/nn/conv_transpose2d.hpp"

#include "lockstep/nn/init.hpp"
#include "nn/describe.hpp"

namespace lockstep::nn {
namespace {

const ConvTranspose2dOptions& checked(const ConvTranspose2dOptions& options) {
  check_channels("ConvTranspose2d", options.in, options.out, options.groups, options.kernel);
  return options;
}

Shape weight_shape(const ConvTranspose2dOptions& options) {
  return {options.in, options.out / options.groups, options.kernel.height, options.kernel.width};
}

}  // namespace

ConvTranspose2d::ConvTranspose2d(const ConvTranspose2dOptions& options)
    : options_(checked(options)),
      weight(this, "weight", init::layer_weight(weight_shape(options), options.tensor)),
      bias(this, "bias", options.bias ? init::bias_of_size(weight, options.out) : Tensor()) {}

Tensor ConvTranspose2d::forward(const Tensor& x) const {
  return conv_transpose2d(x, weight, bias,
                          {.stride = options_.stride,
                           .padding = options_.padding,
                           .output_padding = options_.output_padding,
                           .dilation = options_.dilation,
                           .groups = options_.groups});
}

std::string ConvTranspose2d::describe() const { return describe_convolution(options_); }

}  // namespace lockstep::nn
