#pragma once

#include <cmath>

#include "lockstep/core/macros.hpp"

/// @file
/// What the sum of squares of all gradients says of them.

namespace lockstep::functional {

/// A sum of squares, in two parts that are added each by itself: as they are, and of chunks whose
/// sum is very large, of elements times `large_factor` (after Blue, "A portable Fortran program to
/// find the Euclidean norm of a vector", 1978). Both are finite exactly if all elements are.
/// In memory two f64 elements.
struct SquareSum {
  double plain = 0, large = 0;
  LOCKSTEP_HD SquareSum& operator+=(const SquareSum& other) {
    plain += other.plain;
    large += other.large;
    return *this;
  }
};

/// 10^18 plain sums of chunks have a finite sum.
inline constexpr double largest_plain_sum = 1e290;
/// 10^18 squares of the largest doubles times this have one, too.
inline constexpr double large_factor = 0x1p-600;

/// Whether the squares of a chunk are to be added again in double, plain and large: their sum is
/// too large to be added to others, or not finite.
LOCKSTEP_HD inline bool is_unbounded(double square_sum) {
  return !(square_sum <= largest_plain_sum);
}

LOCKSTEP_HD inline double large_square(double x) { return x * large_factor * (x * large_factor); }

/// The parts of a chunk that was added again.
LOCKSTEP_HD inline SquareSum square_sum_of_chunk(double plain, double large) {
  return is_unbounded(plain) ? SquareSum{0, large} : SquareSum{plain, 0};
}

LOCKSTEP_HD inline double norm_of(const SquareSum& sum) {
  if (sum.large == 0) return ::sqrt(sum.plain);
  return ::sqrt(sum.plain * large_factor * large_factor + sum.large) / large_factor;
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

/// @param square_sum of the gradients. @param limit of the norm.
LOCKSTEP_HD inline MeasuredGradients measure_gradients(const SquareSum& square_sum,
                                                       double loss_scale, double limit) {
  const double norm = norm_of(square_sum) / loss_scale, all = square_sum.plain + square_sum.large;
  return {.norm = norm,
          .divisor = loss_scale / clip_factor(norm, limit),
          .found_inf = !(all - all == 0)};
}

}  // namespace lockstep::functional
