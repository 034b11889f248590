#pragma once

#include "lockstep/core/macros.hpp"

/// @file
/// What changes from one step of training to the next.

namespace lockstep::kernels {

/// Where an optimizer's kernels find it when they run: in the memory of their device, so that work
/// which is queued once and runs many times computes each step's own. All f64.
struct StepState {
  const double* lr = nullptr;          ///< learning rate
  const double* loss_scale = nullptr;  ///< gradients are so many times too large; null: once
  const double* found_inf = nullptr;   ///< not 0: the step is skipped, and not counted; null: 0

  /// True if nothing shall be updated.
  LOCKSTEP_HD bool skips() const { return found_inf && *found_inf != 0; }
  /// What turns a gradient into that of the loss as it was before it was scaled.
  LOCKSTEP_HD double unscaling() const { return loss_scale ? 1.0 / *loss_scale : 1.0; }
};

}  // namespace lockstep::kernels
