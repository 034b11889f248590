#pragma once

#include "functional/group.hpp"
#include "functional/math.hpp"

/// @file
/// Layer norm (Ba, Kiros and Hinton 2016) and RMS norm (Zhang and Sennrich 2019) of one row. The
/// centred flag tells them apart: RMS norm has mean 0 and no bias. Weights may be null; they are in
/// the accumulation type on the CPU, which widens them once, and in x's dtype on the GPU. The
/// result y may have a lower precision than x, and then dy has.

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// A row's mean and 1 / sqrt(variance + eps).
template <class A>
struct NormStatistics {
  A mean, rstd;

  /// x in units of the row's deviation from its mean.
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE A normalise(A x) const { return (x - mean) * rstd; }
};

/// Two passes: the variance is about the mean, so that large offsets cost no precision.
template <bool centred, class A, class Group, class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE NormStatistics<A> norm_statistics(const Group& group, const T* x,
                                                                     std::int64_t n, A eps) {
  A mean = 0;
  if constexpr (centred)
    mean = reduce_packs(group, n, A(0), Plus{},
                        [&](std::int64_t i, auto lanes) { return load<A, lanes.value>(x + i); }) /
           static_cast<A>(n);
  const A squares = reduce_packs(group, n, A(0), Plus{}, [&](std::int64_t i, auto lanes) {
    auto value = load<A, lanes.value>(x + i);
    for (int j = 0; j < lanes.value; ++j) value[j] = (value[j] - mean) * (value[j] - mean);
    return value;
  });
  return {mean, A(1) / math::sqrt(squares / static_cast<A>(n) + eps)};
}

/// y = (x - mean) * rstd * weight + bias; returns the statistics.
template <bool centred, class A, class Group, class X, class Y, class W>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE NormStatistics<A> norm_row(const Group& group, Y* y, const X* x,
                                                              const W* weight, const W* bias,
                                                              std::int64_t n, A eps) {
  const NormStatistics<A> statistics = norm_statistics<centred, A>(group, x, n, eps);
  for_each_pack(group, n, [&](std::int64_t i, auto lanes) {
    auto value = load<A, lanes.value>(x + i);
    for (int j = 0; j < lanes.value; ++j) value[j] = statistics.normalise(value[j]);
    if (weight) {
      const auto factor = load<A, lanes.value>(weight + i);
      for (int j = 0; j < lanes.value; ++j) value[j] *= factor[j];
    }
    if (bias) {
      const auto term = load<A, lanes.value>(bias + i);
      for (int j = 0; j < lanes.value; ++j) value[j] += term[j];
    }
    store(y + i, value);
  });
  return statistics;
}

/// Sums of a gradient and of its product with what was normalised, which travel together.
template <class A>
struct NormSums {
  A plain, product;
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE friend NormSums operator+(const NormSums& a,
                                                               const NormSums& b) {
    return {a.plain + b.plain, a.product + b.product};
  }
};

/// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) with g = dy * weight, xhat = (x - mean) rstd;
/// RMS norm lacks the middle term. Added to what dx holds where `add` says so.
template <bool centred, class A, class Group, class X, class Y, class W>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void norm_backward_row(const Group& group, X* dx, const Y* dy,
                                                          const X* x, const W* weight,
                                                          std::int64_t n,
                                                          NormStatistics<A> statistics, bool add) {
  const auto gradient = [&](std::int64_t i, auto lanes) {
    auto value = load<A, lanes.value>(dy + i);
    if (weight) {
      const auto factor = load<A, lanes.value>(weight + i);
      for (int j = 0; j < lanes.value; ++j) value[j] *= factor[j];
    }
    return value;
  };
  const auto normalised = [&](std::int64_t i, auto lanes) {
    auto value = load<A, lanes.value>(x + i);
    for (int j = 0; j < lanes.value; ++j) value[j] = statistics.normalise(value[j]);
    return value;
  };
  // Both sums in one pass over the row.
  LaneFold<A, Group::width> plain(0), product(0);
  for_each_pack(group, n, [&](std::int64_t i, auto lanes) {
    const auto g = gradient(i, lanes);
    auto hat = normalised(i, lanes);
    for (int j = 0; j < lanes.value; ++j) hat[j] *= g[j];
    if constexpr (centred) plain.take(g, Plus{});
    product.take(hat, Plus{});
  });
  const NormSums<A> sums =
      group.reduce(NormSums<A>{plain.total(Plus{}), product.total(Plus{})}, Plus{});
  const A mean_g = centred ? sums.plain / static_cast<A>(n) : A(0);
  const A mean_gx = sums.product / static_cast<A>(n);
  for_each_pack(group, n, [&](std::int64_t i, auto lanes) {
    auto value = gradient(i, lanes);
    const auto hat = normalised(i, lanes);
    for (int j = 0; j < lanes.value; ++j)
      value[j] = statistics.rstd * (value[j] - mean_g - hat[j] * mean_gx);
    if (add) {
      const auto before = load<A, lanes.value>(dx + i);
      for (int j = 0; j < lanes.value; ++j) value[j] += before[j];
    }
    store(dx + i, value);
  });
}

/// Adds one row's share to the parameters' gradients, of which either may be null:
/// dweight += dy * xhat, dbias += dy.
template <class A, class Group, class X, class Y>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void norm_parameters_row(const Group& group, A* dweight,
                                                            A* dbias, const Y* dy, const X* x,
                                                            std::int64_t n,
                                                            NormStatistics<A> statistics) {
  for_each_pack(group, n, [&](std::int64_t i, auto lanes) {
    const auto gradient = load<A, lanes.value>(dy + i);
    const auto value = load<A, lanes.value>(x + i);
    if (dweight) {
      auto total = load<A, lanes.value>(dweight + i);
      for (int j = 0; j < lanes.value; ++j)
        total[j] += gradient[j] * statistics.normalise(value[j]);
      store(dweight + i, total);
    }
    if (dbias) {
      auto total = load<A, lanes.value>(dbias + i);
      for (int j = 0; j < lanes.value; ++j) total[j] += gradient[j];
      store(dbias + i, total);
    }
  });
}

}  // namespace lockstep::functional::inline LOCKSTEP_ISA
