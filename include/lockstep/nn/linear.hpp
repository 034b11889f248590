#pragma once

#include <cstdint>
#include <string>

#include "lockstep/nn/member.hpp"

/// @file
/// The fully connected layer.

namespace lockstep::nn {

/// Options of Linear.
struct LinearOptions {
  std::int64_t in = 0, out = 0;  ///< features
  bool bias = true;
  TensorOptions tensor = {};  ///< dtype and device of the parameters
};

/// y = x W^T + b. Starts uniform within 1 / sqrt(in), as PyTorch's.
class Linear : public Module {
 public:
  using Options = LinearOptions;
  /// @throws InvalidArgument for extents below 1.
  explicit Linear(const LinearOptions& options);
  /// A layer with bias.
  Linear(std::int64_t in, std::int64_t out, TensorOptions tensor = {})
      : Linear(LinearOptions{.in = in, .out = out, .tensor = tensor}) {}

  /// @param x [..., in]. @return [..., out].
  Tensor forward(const Tensor& x) const;
  /// addend + y in one product (`add_linear`); an undefined addend adds nothing.
  Tensor forward(const Tensor& x, const Tensor& addend) const;
  std::string describe() const override;

  Parameter weight;  ///< [out, in]
  Parameter bias;    ///< [out], or undefined
};

}  // namespace lockstep::nn
