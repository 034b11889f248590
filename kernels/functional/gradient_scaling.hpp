#pragma once

#include <cmath>

#include "lockstep/core/macros.hpp"

/// @file
/// What the sum of squares of all gradients says of them.

namespace lockstep::functional {

/// The largest square that is added up as it is: 10^18 of them have a finite sum in double.
inline constexpr double largest_square = 1e290;

/// Whether a sum of squares is to be taken again, of bounded ones: it is too large to be added to
/// others, or not finite.
LOCKSTEP_HD inline bool is_unbounded(double square_sum) { return !(square_sum <= largest_square); }

/// x², bounded: a sum of such squares is finite exactly if all x are.
LOCKSTEP_HD inline double bounded_square(double x) {
  const double square = x * x;
  return square > largest_square && x - x == 0 ? largest_square : square;
}

/// What clipping multiplies gradients with (Pascanu, Mikolov and Bengio 2013). NaN stays: it must
/// not pass for a small norm.
LOCKSTEP_HD inline double clip_factor(double norm, double limit) {
  const double factor = limit / (norm + 1e-6);
  return factor >= 1.0 ? 1.0 : factor;
}

/// What an optimizer is told of the gradients as a whole.
struct MeasuredGradients {
  double norm;     ///< of the gradients without their loss scale
  double divisor;  ///< takes the loss scale off and limits the norm
  bool found_inf;  ///< not all are finite
};

/// @param square_sum of the gradients, finite exactly if they are. @param limit of the norm.
LOCKSTEP_HD inline MeasuredGradients measure_gradients(double square_sum, double loss_scale,
                                                       double limit) {
  const double norm = ::sqrt(square_sum) / loss_scale;
  return {.norm = norm,
          .divisor = loss_scale / clip_factor(norm, limit),
          .found_inf = !(square_sum - square_sum == 0)};
}

}  // namespace lockstep::functional
