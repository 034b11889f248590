#pragma once

#include <string>

#include "lockstep/nn/module.hpp"

/// @file
/// Dropout.

namespace lockstep::nn {

/// In training, zeroes elements with probability p and scales the rest by 1 / (1 - p) (Srivastava
/// et al. 2014); in evaluation does nothing. Draws from the calling thread's generator.
class Dropout : public Module {
 public:
  /// @throws InvalidArgument for p outside [0, 1].
  explicit Dropout(double p = 0.5);
  /// @param x any shape.
  Tensor forward(const Tensor& x) const;
  /// False if a call gives back what it is given, and nothing else happens.
  bool is_active() const { return has_call_hooks() || (p_ > 0 && is_training()); }
  std::string describe() const override;

 private:
  double p_;
};

/// The same for whole channels of images [N, C, H, W] (Tompson et al. 2015).
class Dropout2d : public Module {
 public:
  /// @throws InvalidArgument for p outside [0, 1].
  explicit Dropout2d(double p = 0.5);
  /// @param x [N, C, H, W].
  Tensor forward(const Tensor& x) const;
  std::string describe() const override;

 private:
  double p_;
};

}  // namespace lockstep::nn
