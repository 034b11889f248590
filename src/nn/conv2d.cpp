#include "lockstep/nn/conv2d.hpp"

#include "lockstep/nn/init.hpp"
#include "nn/describe.hpp"

namespace lockstep::nn {
namespace {

const Conv2dOptions& checked(const Conv2dOptions& options) {
  LOCKSTEP_CHECK(
      options.in > 0 && options.out > 0 && options.kernel.height > 0 && options.kernel.width > 0,
      InvalidArgument, "Conv2d(", options.in, ", ", options.out, ", ", text_of(options.kernel),
      "): channels and kernel must be at least 1");
  LOCKSTEP_CHECK(
      options.groups > 0 && options.in % options.groups == 0 && options.out % options.groups == 0,
      InvalidArgument, "Conv2d: ", options.groups, " groups do not divide ", options.in, " and ",
      options.out, " channels");
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

std::string Conv2d::describe() const {
  std::string result = text(options_.in, ", ", options_.out, ", kernel=", text_of(options_.kernel));
  if (text_of(options_.stride) != "1") result += ", stride=" + text_of(options_.stride);
  if (text_of(options_.padding) != "0") result += ", padding=" + text_of(options_.padding);
  if (text_of(options_.dilation) != "1") result += ", dilation=" + text_of(options_.dilation);
  if (options_.groups != 1) result += text(", groups=", options_.groups);
  if (!options_.bias) result += ", no bias";
  return result;
}

}  // namespace lockstep::nn
