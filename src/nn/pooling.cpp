#include "lockstep/nn/pooling.hpp"

#include <algorithm>

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

Tensor Unflatten::forward(const Tensor& x) const {
  Shape shape = x.shape(), sizes = sizes_;
  const int d = wrap_dim(dim_, x.dim());
  std::int64_t known = 1;
  int unknown = -1;
  for (int i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == -1 && unknown < 0)
      unknown = i;
    else
      known *= sizes[i];
  }
  if (unknown >= 0 && known > 0) sizes[unknown] = shape[d] / known;
  LOCKSTEP_CHECK(!sizes.empty() && std::ranges::min(sizes) >= 0 && numel(sizes) == shape[d],
                 InvalidArgument, "Unflatten: dimension ", d, " of an input of shape ", x.shape(),
                 " cannot become ", sizes_);
  shape.erase(d);
  for (int i = 0; i < sizes.size(); ++i) shape.insert(d + i, sizes[i]);
  return x.reshape(shape);
}

std::string MaxPool1d::describe() const { return describe_windows(options_); }
std::string AvgPool1d::describe() const { return describe_windows(options_); }
std::string AdaptiveAvgPool1d::describe() const { return text(output_); }
std::string MaxPool2d::describe() const { return describe_windows(options_); }
std::string AvgPool2d::describe() const { return describe_windows(options_); }
std::string AdaptiveAvgPool2d::describe() const { return text_of(output_); }

}  // namespace lockstep::nn
