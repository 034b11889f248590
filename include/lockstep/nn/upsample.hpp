#pragma once

#include <string>

#include "lockstep/autograd/ops/spatial.hpp"
#include "lockstep/nn/module.hpp"

/// @file
/// Resizing as a module.

namespace lockstep::nn {

/// Images at another size.
class Upsample : public Module {
 public:
  using Options = InterpolateOptions;
  /// With all options.
  explicit Upsample(const InterpolateOptions& options) : options_(options) {}
  /// @param x [N, C, H, W].
  Tensor forward(const Tensor& x) const { return interpolate(x, options_); }
  std::string describe() const override;

 private:
  InterpolateOptions options_;
};

}  // namespace lockstep::nn
