#include "lockstep/nn/pooling.hpp"

#include "nn/describe.hpp"

namespace lockstep::nn {
namespace {

std::string describe_windows(const Pool2dOptions& options) {
  std::string result = "kernel=" + text_of(options.kernel);
  if (options.stride.height) result += ", stride=" + text_of(options.stride);
  if (options.padding.height || options.padding.width)
    result += ", padding=" + text_of(options.padding);
  if (options.ceil_mode) result += ", ceil_mode";
  return result;
}

std::string describe_windows(const Pool1dOptions& options) {
  std::string result = text("kernel=", options.kernel);
  if (options.stride) result += text(", stride=", options.stride);
  if (options.padding) result += text(", padding=", options.padding);
  if (options.ceil_mode) result += ", ceil_mode";
  return result;
}

}  // namespace

std::string MaxPool1d::describe() const { return describe_windows(options_); }
std::string AvgPool1d::describe() const { return describe_windows(options_); }
std::string AdaptiveAvgPool1d::describe() const { return text(output_); }
std::string MaxPool2d::describe() const { return describe_windows(options_); }
std::string AvgPool2d::describe() const { return describe_windows(options_); }
std::string AdaptiveAvgPool2d::describe() const { return text_of(output_); }

}  // namespace lockstep::nn
