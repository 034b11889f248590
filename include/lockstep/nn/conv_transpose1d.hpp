#pragma once

#include <cstdint>
#include <string>

#include "lockstep/autograd/ops/spatial.hpp"
#include "lockstep/nn/member.hpp"

/// @file
/// The transposed convolution layer of sequences.

namespace lockstep::nn {

/// Options of ConvTranspose1d.
struct ConvTranspose1dOptions {
  std::int64_t in = 0, out = 0;  ///< channels
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t output_padding = 0;  ///< positions more at the end; below stride or dilation
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  TensorOptions tensor = {};  ///< dtype and device of the parameters
};

/// The transpose of a convolution of sequences, with learned kernels: makes them longer where a
/// convolution of the same geometry makes them shorter. Starts uniform within
/// 1 / sqrt(out / groups * K), as PyTorch's.
class ConvTranspose1d : public Module {
 public:
  using Options = ConvTranspose1dOptions;
  /// @throws InvalidArgument for extents below 1, or groups that do not divide the channels.
  explicit ConvTranspose1d(const ConvTranspose1dOptions& options);
  /// A layer with bias, stride 1 and no padding.
  ConvTranspose1d(std::int64_t in, std::int64_t out, std::int64_t kernel)
      : ConvTranspose1d(ConvTranspose1dOptions{.in = in, .out = out, .kernel = kernel}) {}

  /// @param x [N, in, L]. @return [N, out, L'].
  Tensor forward(const Tensor& x) const;
  std::string describe() const override;
  /// What it was made from.
  const ConvTranspose1dOptions& options() const noexcept { return options_; }

 private:
  ConvTranspose1dOptions options_;

 public:
  Parameter weight;  ///< [in, out / groups, K]
  Parameter bias;    ///< [out], or undefined
};

}  // namespace lockstep::nn
