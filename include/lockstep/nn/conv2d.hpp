#pragma once

#include <cstdint>
#include <string>

#include "lockstep/autograd/ops/shape.hpp"
#include "lockstep/autograd/ops/spatial.hpp"
#include "lockstep/nn/member.hpp"

/// @file
/// The convolution layer.

namespace lockstep::nn {

/// Options of Conv2d.
struct Conv2dOptions {
  std::int64_t in = 0, out = 0;  ///< channels
  Size2d kernel = 1;
  Size2d stride = 1;
  Size2d padding = 0;  ///< or `same_padding`
  Size2d dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  PaddingMode padding_mode = PaddingMode::constant;
  TensorOptions tensor = {};  ///< dtype and device of the parameters
};

/// Cross-correlation of images with learned kernels. Starts uniform within 1 / sqrt(fan in), as
/// PyTorch's.
class Conv2d : public Module {
 public:
  using Options = Conv2dOptions;
  /// @throws InvalidArgument for extents below 1, groups that do not divide the channels, and
  /// `same_padding` with a stride.
  explicit Conv2d(const Conv2dOptions& options);
  /// A layer with bias, stride 1 and no padding.
  Conv2d(std::int64_t in, std::int64_t out, Size2d kernel)
      : Conv2d(Conv2dOptions{.in = in, .out = out, .kernel = kernel}) {}

  /// @param x [N, in, H, W]. @return [N, out, H', W'].
  Tensor forward(const Tensor& x) const;
  std::string describe() const override;
  /// What it was made from.
  const Conv2dOptions& options() const noexcept { return options_; }

 private:
  /// x as the kernels see it, but for zeros.
  Tensor padded(const Tensor& x) const;
  Conv2dOptions options_;

 public:
  Parameter weight;  ///< [out, in / groups, KH, KW]
  Parameter bias;    ///< [out], or undefined
};

}  // namespace lockstep::nn
