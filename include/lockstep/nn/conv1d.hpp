#pragma once

#include <cstdint>
#include <string>

#include "lockstep/autograd/ops/shape.hpp"
#include "lockstep/autograd/ops/spatial.hpp"
#include "lockstep/nn/member.hpp"

/// @file
/// The convolution layer of sequences.

namespace lockstep::nn {

/// Options of Conv1d.
struct Conv1dOptions {
  std::int64_t in = 0, out = 0;  ///< channels
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;  ///< or `same_padding`
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
  PaddingMode padding_mode = PaddingMode::constant;
  TensorOptions tensor = {};  ///< dtype and device of the parameters
};

/// Cross-correlation of sequences with learned kernels. Starts uniform within 1 / sqrt(fan in), as
/// PyTorch's.
class Conv1d : public Module {
 public:
  using Options = Conv1dOptions;
  /// @throws InvalidArgument for extents below 1, groups that do not divide the channels, and
  /// `same_padding` with a stride.
  explicit Conv1d(const Conv1dOptions& options);
  /// A layer with bias, stride 1 and no padding.
  Conv1d(std::int64_t in, std::int64_t out, std::int64_t kernel)
      : Conv1d(Conv1dOptions{.in = in, .out = out, .kernel = kernel}) {}

  /// @param x [N, in, L]. @return [N, out, L'].
  Tensor forward(const Tensor& x) const;
  std::string describe() const override;
  /// What it was made from.
  const Conv1dOptions& options() const noexcept { return options_; }

 private:
  /// x as the kernels see it, but for zeros.
  Tensor padded(const Tensor& x) const;
  Conv1dOptions options_;

 public:
  Parameter weight;  ///< [out, in / groups, K]
  Parameter bias;    ///< [out], or undefined
};

}  // namespace lockstep::nn
