#pragma once

#include "functional/norm.hpp"

/// @file
/// Batch normalisation (Ioffe and Szegedy 2015) of one element, given its channel's statistics,
/// over the accumulation type A.

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// (x - mean) * scale + bias, with scale = rstd * weight
template <class A>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE A batch_norm(A x, A mean, A scale, A bias) {
  return (x - mean) * scale + bias;
}

/// max(z, 0); NaN stays: as the op `relu`.
template <class A>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE A batch_norm_relu(A z) {
  return z < A(0) ? A(0) : z;
}

/// The gradient in front of ReLU, with y behind it.
template <class A>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE A batch_norm_relu_gradient(A dy, A y) {
  return y <= A(0) ? A(0) : dy;
}

/// Number, mean and sum of squared deviations from it of some values. Two such sets make one (Chan,
/// Golub and LeVeque 1979), with no cancellation where the mean is far from 0.
template <class A>
struct Moments {
  A count, mean, squares;

  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE friend Moments operator+(const Moments& a, const Moments& b) {
    const A count = a.count + b.count;
    const A delta = b.mean - a.mean, share = count > A(0) ? b.count / count : A(0);
    return {count, a.mean + delta * share, a.squares + b.squares + delta * delta * a.count * share};
  }
};

/// What an element adds to the sums that backward needs of its channel: dy, and dy * (x - mean),
/// which is dy * xhat but for a factor of the channel.
template <class A>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE NormSums<A> batch_norm_terms(A dy, A x, A mean) {
  return {dy, dy * (x - mean)};
}

/// The gradient of a channel's elements: rstd * weight * (dy - mean(dy) - xhat * mean(dy * xhat)),
/// as scale * dy - offset - (x - mean) * slope.
template <class A>
struct BatchNormGradient {
  A mean, scale, offset, slope;

  /// @param sums of dy and dy * xhat. @param inverse_count 0 for fixed statistics, which pass
  /// nothing back: as if a channel had infinitely many elements.
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE static BatchNormGradient of(NormStatistics<A> channel,
                                                                 A weight, NormSums<A> sums,
                                                                 A inverse_count) {
    const A scale = channel.rstd * weight;
    return {channel.mean, scale, scale * (inverse_count * sums.plain),
            scale * (inverse_count * sums.product) * channel.rstd};
  }
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE A operator()(A dy, A x) const {
    return scale * dy - offset - (x - mean) * slope;
  }
};

/// 1 / sqrt(variance + eps)
template <class A>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE A inverse_deviation(A variance, A eps) {
  return A(1) / math::sqrt(variance + eps);
}

/// A running value after a batch.
template <class A>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE A moved_running(A running, A batch, A momentum) {
  return running + momentum * (batch - running);
}

}  // namespace lockstep::functional::inline LOCKSTEP_ISA
