#pragma once

#include <cstdint>

#include "lockstep/core/macros.hpp"

/// @file
/// How a loss scale follows what it does to the gradients (Micikevicius et al. 2018).

namespace lockstep {

/// PyTorch's rule: multiplied by `growth_factor` after so many steps in a row whose gradients were
/// finite, by `backoff_factor` after each whose were not.
struct LossScaleRule {
  double growth_factor = 2.0, backoff_factor = 0.5;
  std::int64_t growth_interval = 2000;
};

/// A loss scale and what is counted for it.
struct LossScale {
  double value = 1.0;
  std::int64_t finite_steps = 0;   ///< in a row, since the scale last changed
  std::int64_t skipped_steps = 0;  ///< in a row
};

namespace functional {

/// The next step's. A factor that would make the scale vanish or overflow in f32 leaves it alone.
LOCKSTEP_HD inline LossScale next_loss_scale(const LossScaleRule& rule, LossScale scale,
                                             bool found_inf) {
  constexpr double least = 0x1p-126, most = 0x1p127;
  if (found_inf) {
    const double smaller = scale.value * rule.backoff_factor;
    return {smaller >= least ? smaller : scale.value, 0, scale.skipped_steps + 1};
  }
  if (scale.finite_steps + 1 < rule.growth_interval)
    return {scale.value, scale.finite_steps + 1, 0};
  const double larger = scale.value * rule.growth_factor;
  return {larger <= most ? larger : scale.value, 0, 0};
}

}  // namespace functional
}  // namespace lockstep
