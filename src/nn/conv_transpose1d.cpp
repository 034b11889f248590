#include "lockstep/nn/conv_transpose1d.hpp"

#include "lockstep/nn/init.hpp"
#include "nn/describe.hpp"

namespace lockstep::nn {
namespace {

const ConvTranspose1dOptions& checked(const ConvTranspose1dOptions& options) {
  check_channels("ConvTranspose1d", options.in, options.out, options.groups, options.kernel);
  return options;
}

Shape weight_shape(const ConvTranspose1dOptions& options) {
  return {options.in, options.out / options.groups, options.kernel};
}

}  // namespace

ConvTranspose1d::ConvTranspose1d(const ConvTranspose1dOptions& options)
    : options_(checked(options)),
      weight(this, "weight", init::layer_weight(weight_shape(options), options.tensor)),
      bias(this, "bias", options.bias ? init::bias_of_size(weight, options.out) : Tensor()) {}

Tensor ConvTranspose1d::forward(const Tensor& x) const {
  return conv_transpose1d(x, weight, bias,
                          {.stride = options_.stride,
                           .padding = options_.padding,
                           .output_padding = options_.output_padding,
                           .dilation = options_.dilation,
                           .groups = options_.groups});
}

std::string ConvTranspose1d::describe() const { return describe_convolution(options_); }

}  // namespace lockstep::nn
