#include "lockstep/nn/conv1d.hpp"

#include "lockstep/nn/init.hpp"
#include "nn/describe.hpp"

namespace lockstep::nn {
namespace {

const Conv1dOptions& checked(const Conv1dOptions& options) {
  check_channels("Conv1d", options.in, options.out, options.groups, options.kernel);
  return options;
}

}  // namespace

Conv1d::Conv1d(const Conv1dOptions& options)
    : options_(checked(options)),
      weight(this, "weight",
             init::layer_weight({options.out, options.in / options.groups, options.kernel},
                                options.tensor)),
      bias(this, "bias", init::layer_bias(weight, options.bias)) {}

Tensor Conv1d::forward(const Tensor& x) const {
  return conv1d(x, weight, bias,
                {.stride = options_.stride,
                 .padding = options_.padding,
                 .dilation = options_.dilation,
                 .groups = options_.groups});
}

std::string Conv1d::describe() const { return describe_convolution(options_); }

}  // namespace lockstep::nn
