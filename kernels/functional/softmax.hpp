#pragma once

#include "functional/group.hpp"
#include "functional/math.hpp"

/// @file
/// Softmax and log-softmax of a row, shifted by its maximum so that nothing overflows.

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// The maximum m of a row x and the sum of exp(x - m). Kept apart: their log-sum-exp, as one
/// number, would be too coarse to take a large logit from.
template <class A>
struct SoftmaxStatistics {
  A maximum, sum;
};

/// e^x, as exactly as rows of T need it.
template <class T, class A>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE A exp_of(A x) {
  if constexpr (sizeof(T) == 2)
    return math::short_exp(x);
  else
    return math::exp(x);
}

/// Statistics of row x of n elements.
template <class A, class Group, class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE SoftmaxStatistics<A> softmax_statistics(const Group& group,
                                                                           const T* x,
                                                                           std::int64_t n) {
  const A lowest = -static_cast<A>(math::detail::infinity);
  const A maximum = reduce_packs(group, n, lowest, Larger{}, [&](std::int64_t i, auto lanes) {
    return load<A, lanes.value>(x + i);
  });
  const A sum = reduce_packs(group, n, A(0), Plus{}, [&](std::int64_t i, auto lanes) {
    auto value = load<A, lanes.value>(x + i);
    for (int j = 0; j < lanes.value; ++j) value[j] = exp_of<T>(value[j] - maximum);
    return value;
  });
  return {maximum, sum};
}

/// y = softmax(x), or with `log` its logarithm; in place is allowed.
template <bool log, class A, class Group, class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void softmax_row(const Group& group, T* y, const T* x,
                                                    std::int64_t n) {
  const auto [maximum, sum] = softmax_statistics<A>(group, x, n);
  // The maximum comes off first: added to it, the logarithm would lose its digits.
  const A log_sum = log ? math::log(sum) : A(0);
  const A scale = A(1) / sum;
  for_each_pack(group, n, [&](std::int64_t i, auto lanes) {
    auto value = load<A, lanes.value>(x + i);
    for (int j = 0; j < lanes.value; ++j)
      value[j] = log ? (value[j] - maximum) - log_sum : exp_of<T>(value[j] - maximum) * scale;
    store(y + i, value);
  });
}

/// dx from dy and y: y (dy - sum(dy y)), or for the logarithm dy - e^y sum(dy).
template <bool log, class A, class Group, class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void softmax_backward_row(const Group& group, T* dx, const T* dy,
                                                             const T* y, std::int64_t n) {
  const A total = reduce_packs(group, n, A(0), Plus{}, [&](std::int64_t i, auto lanes) {
    auto value = load<A, lanes.value>(dy + i);
    if constexpr (!log) {
      const auto result = load<A, lanes.value>(y + i);
      for (int j = 0; j < lanes.value; ++j) value[j] *= result[j];
    }
    return value;
  });
  for_each_pack(group, n, [&](std::int64_t i, auto lanes) {
    auto value = load<A, lanes.value>(dy + i);
    const auto result = load<A, lanes.value>(y + i);
    for (int j = 0; j < lanes.value; ++j)
      value[j] = log ? value[j] - exp_of<T>(result[j]) * total : result[j] * (value[j] - total);
    store(dx + i, value);
  });
}

}  // namespace lockstep::functional::inline LOCKSTEP_ISA
