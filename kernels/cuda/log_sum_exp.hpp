#pragma once

#include "cuda/row_access.hpp"
#include "functional/math.hpp"

namespace lockstep::cuda_kernels {

/// A running maximum and the sum of e^(x - maximum): Milakov and Gimelshein, "Online normalizer
/// calculation for softmax" (2018).
template <class A>
struct LogSumExp {
  static constexpr A lowest = -A(__builtin_huge_valf());
  A maximum = lowest;
  A sum = A(0);

  __device__ void add(A x) { *this = merged({x, A(1)}); }
  __device__ LogSumExp merged(const LogSumExp& other) const {
    const A high = maximum > other.maximum || maximum != maximum ? maximum : other.maximum;
    // Nothing but -infinity so far: its distance to itself is no number.
    if (high == lowest) return {high, sum + other.sum};
    return {high, sum * functional::math::exp(maximum - high) +
                      other.sum * functional::math::exp(other.maximum - high)};
  }
  __device__ A value() const { return maximum + functional::math::log(sum); }
};

struct MergeLogSumExp {
  template <class A>
  __device__ LogSumExp<A> operator()(const LogSumExp<A>& a, const LogSumExp<A>& b) const {
    return a.merged(b);
  }
};

/// The log-sum-exp parts of a row, known to every thread of the group.
template <int N, class Group, class T>
__device__ LogSumExp<AccumulateType<T>> row_log_sum_exp(const Group& group, const T* row,
                                                        std::int64_t columns, bool wide) {
  LogSumExp<AccumulateType<T>> state;
  for_each_vector<N>(group, columns, [&](std::int64_t at) {
    const auto x = load_row<N>(row, at, columns, wide);
    LOCKSTEP_UNROLL
    for (int j = 0; j < N; ++j)
      if (wide || at + j < columns) state.add(x[j]);
  });
  return group.reduce(state, MergeLogSumExp{});
}

}  // namespace lockstep::cuda_kernels
