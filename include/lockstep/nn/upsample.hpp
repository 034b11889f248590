#pragma once

#include <cstdint>
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

/// Channels as pixels: images that are `factor` times as high and wide (Shi et al. 2016).
class PixelShuffle : public Module {
 public:
  /// @throws InvalidArgument for a factor below 1.
  explicit PixelShuffle(std::int64_t factor);
  /// @param x [..., C * factor^2, H, W]. @return [..., C, H * factor, W * factor].
  Tensor forward(const Tensor& x) const { return pixel_shuffle(x, factor_); }
  std::string describe() const override;

 private:
  std::int64_t factor_;
};

/// Pixels as channels, the other way round.
class PixelUnshuffle : public Module {
 public:
  /// @throws InvalidArgument for a factor below 1.
  explicit PixelUnshuffle(std::int64_t factor);
  /// @param x [..., C, H * factor, W * factor]. @return [..., C * factor^2, H, W].
  Tensor forward(const Tensor& x) const { return pixel_unshuffle(x, factor_); }
  std::string describe() const override;

 private:
  std::int64_t factor_;
};

}  // namespace lockstep::nn
