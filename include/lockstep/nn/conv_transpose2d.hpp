#pragma once

#include <cstdint>
#include <string>

#include "lockstep/autograd/ops/spatial.hpp"
#include "lockstep/nn/member.hpp"

/// @file
/// The transposed convolution layer.

namespace lockstep::nn {

/// Options of ConvTranspose2d.
struct ConvTranspose2dOptions {
  std::int64_t in = 0, out = 0;  ///< channels
  Size2d kernel = 1;
  Size2d stride = 1;
  Size2d padding = 0;
  Size2d output_padding = 0;  ///< rows and columns more at the end; below stride or dilation
  Size2d dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  TensorOptions tensor = {};  ///< dtype and device of the parameters
};

/// The transpose of a convolution, with learned kernels: makes images larger where a convolution of
/// the same geometry makes them smaller. Starts uniform within 1 / sqrt(out / groups * KH * KW), as
/// PyTorch's.
class ConvTranspose2d : public Module {
 public:
  using Options = ConvTranspose2dOptions;
  /// @throws InvalidArgument for extents below 1, or groups that do not divide the channels.
  explicit ConvTranspose2d(const ConvTranspose2dOptions& options);
  /// A layer with bias, stride 1 and no padding.
  ConvTranspose2d(std::int64_t in, std::int64_t out, Size2d kernel)
      : ConvTranspose2d(ConvTranspose2dOptions{.in = in, .out = out, .kernel = kernel}) {}

  /// @param x [N, in, H, W]. @return [N, out, H', W'].
  Tensor forward(const Tensor& x) const;
  std::string describe() const override;
  /// What it was made from.
  const ConvTranspose2dOptions& options() const noexcept { return options_; }

 private:
  ConvTranspose2dOptions options_;

 public:
  Parameter weight;  ///< [in, out / groups, KH, KW]
  Parameter bias;    ///< [out], or undefined
};

}  // namespace lockstep::nn
