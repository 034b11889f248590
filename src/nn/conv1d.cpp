#include "lockstep/nn/conv1d.hpp"

#include "autograd/ops/same_padding.hpp"
#include "lockstep/nn/init.hpp"
#include "nn/describe.hpp"

namespace lockstep::nn {
namespace {

autograd::PaddedSides sides_of(const Conv1dOptions& options) {
  return autograd::padded_sides("Conv1d", options.padding, options.kernel, options.stride,
                                options.dilation);
}

const Conv1dOptions& checked(const Conv1dOptions& options) {
  check_channels("Conv1d", options.in, options.out, options.groups, options.kernel);
  (void)sides_of(options);
  return options;
}

}  // namespace

Conv1d::Conv1d(const Conv1dOptions& options)
    : options_(checked(options)),
      weight(this, "weight",
             init::layer_weight({options.out, options.in / options.groups, options.kernel},
                                options.tensor)),
      bias(this, "bias", init::layer_bias(weight, options.bias)) {}

Tensor Conv1d::padded(const Tensor& x) const {
  if (options_.padding_mode == PaddingMode::constant) return x;
  const auto [before, after] = sides_of(options_);
  return pad(x, {before, after}, options_.padding_mode);
}

Tensor Conv1d::forward(const Tensor& x) const {
  const bool zeros = options_.padding_mode == PaddingMode::constant;
  return conv1d(padded(x), weight, bias,
                {.stride = options_.stride,
                 .padding = zeros ? options_.padding : 0,
                 .dilation = options_.dilation,
                 .groups = options_.groups});
}

std::string Conv1d::describe() const { return describe_convolution(options_); }

}  // namespace lockstep::nn
