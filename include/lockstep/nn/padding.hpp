#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/autograd/ops/shape.hpp"
#include "lockstep/nn/module.hpp"

/// @file
/// Padding by what lies in a sequence or an image, as modules.

namespace lockstep::nn {

/// What the padding layers share.
class Padding : public Module {
 public:
  /// @param x any shape with as many dimensions as are padded.
  /// @throws InvalidArgument for extents that are too small, as `pad`.
  Tensor forward(const Tensor& x) const { return pad(x, padding_, mode_); }
  std::string describe() const override;

 protected:
  /// @param padding (before, after) pairs from the last dimension on.
  /// @throws InvalidArgument for a negative one.
  Padding(PaddingMode mode, std::vector<std::int64_t> padding);

 private:
  PaddingMode mode_;
  std::vector<std::int64_t> padding_;
};

/// Surrounds images [N, C, H, W] with 0.
struct ZeroPad2d : Padding {
  /// The same on all sides.
  explicit ZeroPad2d(std::int64_t all) : ZeroPad2d(all, all, all, all) {}
  ZeroPad2d(std::int64_t left, std::int64_t right, std::int64_t top, std::int64_t bottom)
      : Padding(PaddingMode::constant, {left, right, top, bottom}) {}
};

/// Reflects sequences [N, C, L] at their edges, which are not repeated.
struct ReflectionPad1d : Padding {
  /// The same on all sides.
  explicit ReflectionPad1d(std::int64_t all) : ReflectionPad1d(all, all) {}
  ReflectionPad1d(std::int64_t left, std::int64_t right)
      : Padding(PaddingMode::reflect, {left, right}) {}
};

/// Reflects images [N, C, H, W] at their edges, which are not repeated.
struct ReflectionPad2d : Padding {
  /// The same on all sides.
  explicit ReflectionPad2d(std::int64_t all) : ReflectionPad2d(all, all, all, all) {}
  ReflectionPad2d(std::int64_t left, std::int64_t right, std::int64_t top, std::int64_t bottom)
      : Padding(PaddingMode::reflect, {left, right, top, bottom}) {}
};

/// Repeats the edges of sequences [N, C, L].
struct ReplicationPad1d : Padding {
  /// The same on all sides.
  explicit ReplicationPad1d(std::int64_t all) : ReplicationPad1d(all, all) {}
  ReplicationPad1d(std::int64_t left, std::int64_t right)
      : Padding(PaddingMode::replicate, {left, right}) {}
};

/// Repeats the edges of images [N, C, H, W].
struct ReplicationPad2d : Padding {
  /// The same on all sides.
  explicit ReplicationPad2d(std::int64_t all) : ReplicationPad2d(all, all, all, all) {}
  ReplicationPad2d(std::int64_t left, std::int64_t right, std::int64_t top, std::int64_t bottom)
      : Padding(PaddingMode::replicate, {left, right, top, bottom}) {}
};

/// Continues sequences [N, C, L] at their other end.
struct CircularPad1d : Padding {
  /// The same on all sides.
  explicit CircularPad1d(std::int64_t all) : CircularPad1d(all, all) {}
  CircularPad1d(std::int64_t left, std::int64_t right)
      : Padding(PaddingMode::circular, {left, right}) {}
};

/// Continues images [N, C, H, W] at their other end.
struct CircularPad2d : Padding {
  /// The same on all sides.
  explicit CircularPad2d(std::int64_t all) : CircularPad2d(all, all, all, all) {}
  CircularPad2d(std::int64_t left, std::int64_t right, std::int64_t top, std::int64_t bottom)
      : Padding(PaddingMode::circular, {left, right, top, bottom}) {}
};

}  // namespace lockstep::nn
