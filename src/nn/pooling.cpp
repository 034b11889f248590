#include "lockstep/nn/pooling.hpp"

#include "nn/describe.hpp"

namespace lockstep::nn {
namespace {

std::string describe_windows(const Pool2dOptions& options) {
  std::string result = "kernel=" + text_of(options.kernel);
  if (options.stride.height) result += ", stride=" + text_of(options.stride);
  if (options.padding.height || options.padding.width)
    result += ", padding=" + text_of(options.padding);
  return result;
}

}  // namespace

std::string MaxPool2d::describe() const { return describe_windows(options_); }
std::string AvgPool2d::describe() const { return describe_windows(options_); }
std::string AdaptiveAvgPool2d::describe() const { return text_of(output_); }

}  // namespace lockstep::nn
