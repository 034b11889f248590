#pragma once

#include "functional/softmax.hpp"

/// @file
/// Cross-entropy of one row of logits against a class, with label smoothing (Szegedy et al. 2016)
/// and class weights, as PyTorch defines their combination.

namespace lockstep::functional::inline LOCKSTEP_ISA {

/// The arguments of one row.
template <class A, class T, class Index = std::int64_t>
struct CrossEntropyRow {
  const T* logits;
  const A* weight;  ///< per class, or null for ones
  Index classes;
  std::int64_t target;  ///< outside [0, classes): the loss is NaN
  bool ignored;         ///< the row counts for nothing
  A smoothing;

  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE bool target_is_valid() const {
    return target >= 0 && target < classes;
  }
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE A weight_of(Index c) const {
    return weight ? weight[c] : A(1);
  }
  /// Weights of neighbouring classes.
  template <int count>
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE Pack<A, count> weights(Index c) const {
    Pack<A, count> pack;
    for (int j = 0; j < count; ++j) pack[j] = weight_of(c + j);
    return pack;
  }
};

/// The loss of one row. `maximum` and `sum` are its softmax statistics, for backward.
template <class A>
struct CrossEntropyResult {
  A loss, maximum, sum, row_weight;
};

/// (1 - s) w_t (lse - x_t) + s / C sum_c w_c (lse - x_c), with lse = maximum + log(sum)
template <class A, class Group, class T, class Index>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE CrossEntropyResult<A> cross_entropy_row(
    const Group& group, const CrossEntropyRow<A, T, Index>& row,
    const SoftmaxStatistics<A>& statistics) {
  const auto [maximum, sum] = statistics;
  if (row.ignored) return {A(0), maximum, sum, A(0)};
  if (!row.target_is_valid())
    return {static_cast<A>(math::detail::infinity) * A(0), maximum, sum, A(0)};
  const A log_sum = math::log(sum);
  const auto target = static_cast<Index>(row.target);
  const A row_weight = row.weight_of(target);
  const A distance = maximum - static_cast<A>(row.logits[target]);
  A loss = (1 - row.smoothing) * row_weight * (distance + log_sum);
  if (row.smoothing > 0) {
    const A spread = reduce_packs(group, row.classes, A(0), Plus{}, [&](Index i, auto lanes) {
      auto value = load<A, lanes.value>(row.logits + i);
      const auto weight = row.template weights<lanes.value>(i);
      for (int j = 0; j < lanes.value; ++j) value[j] = weight[j] * ((maximum - value[j]) + log_sum);
      return value;
    });
    loss += row.smoothing / static_cast<A>(row.classes) * spread;
  }
  return {loss, maximum, sum, row_weight};
}
template <class A, class Group, class T, class Index>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE CrossEntropyResult<A> cross_entropy_row(
    const Group& group, const CrossEntropyRow<A, T, Index>& row) {
  return cross_entropy_row(group, row, softmax_statistics<A>(group, row.logits, row.classes));
}

/// Gives packs of exp(logit - maximum) of a row, from an element on.
template <class A, class T>
struct RowExponentials {
  const T* logits;
  A maximum;
  template <class Index, class Lanes>
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE auto operator()(Index i, Lanes) const {
    auto value = load<A, Lanes::value>(logits + i);
    for (int j = 0; j < Lanes::value; ++j) value[j] = exp_of<T>(value[j] - maximum);
    return value;
  }
};

/// For `done` of cross_entropy_backward_row: nothing.
struct NothingMore {
  template <class Index, class Lanes>
  LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void operator()(Index, Lanes) const {}
};

/// dlogits of the row for a loss gradient `dloss`, from the statistics that the forward kept; may
/// overwrite the logits.
/// @param exponential gives a pack of exp(logit - maximum), from an element on
/// @param done is told of each pack whose logits are no longer needed
template <class A, class Group, class T, class Index, class Exponential, class Done = NothingMore>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void cross_entropy_backward_row(
    const Group& group, T* dlogits, A dloss, const SoftmaxStatistics<A>& statistics,
    const CrossEntropyRow<A, T, Index>& row, const Exponential& exponential,
    const Done& done = {}) {
  if (row.ignored || !row.target_is_valid()) {
    // A target that names no class makes its gradient what it makes its loss.
    const A otherwise = row.ignored ? A(0) : static_cast<A>(math::detail::infinity) * A(0);
    return for_each_pack(group, row.classes, [&](Index i, auto lanes) {
      store(dlogits + i, splat<A, lanes.value>(otherwise));
      done(i, lanes);
    });
  }
  const auto target = static_cast<Index>(row.target);
  const A on_target = dloss * (1 - row.smoothing) * row.weight_of(target);
  const A spread = dloss * row.smoothing / static_cast<A>(row.classes);
  A weight_sum = static_cast<A>(row.classes);
  if (row.weight && row.smoothing > 0)
    weight_sum = reduce_packs(group, row.classes, A(0), Plus{}, [&](Index i, auto lanes) {
      return row.template weights<lanes.value>(i);
    });
  const A softmax_scale = (on_target + spread * weight_sum) / statistics.sum;
  for_each_pack(group, row.classes, [&](Index i, auto lanes) {
    auto value = exponential(i, lanes);
    if (row.weight) {
      const auto weight = row.template weights<lanes.value>(i);
      for (int j = 0; j < lanes.value; ++j)
        value[j] = value[j] * softmax_scale - spread * weight[j];
    } else {
      for (int j = 0; j < lanes.value; ++j) value[j] = value[j] * softmax_scale - spread;
    }
    if (const Index at = target - i; at >= 0 && at < lanes.value)
      for (int j = 0; j < lanes.value; ++j) value[j] -= j == at ? on_target : A(0);
    store(dlogits + i, value);
    done(i, lanes);
  });
}
template <class A, class Group, class T, class Index>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE void cross_entropy_backward_row(
    const Group& group, T* dlogits, A dloss, const SoftmaxStatistics<A>& statistics,
    const CrossEntropyRow<A, T, Index>& row) {
  cross_entropy_backward_row(group, dlogits, dloss, statistics, row,
                             RowExponentials<A, T>{row.logits, statistics.maximum});
}

/// Statistics of row x of n elements, each of which is read once: sums move along with the largest
/// element so far (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
template <class A, class Group, class T, class Index>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE SoftmaxStatistics<A> online_softmax_statistics(
    const Group& group, const T* x, Index n) {
  const A lowest = -static_cast<A>(math::detail::infinity);
  A own = lowest, sum = 0;
  for_each_pack(group, n, [&](Index i, auto lanes) {
    const auto value = load<A, lanes.value>(x + i);
    A largest = own;
    for (int j = 0; j < lanes.value; ++j) largest = Larger{}(largest, value[j]);
    const A shift = largest == lowest ? A(0) : largest;  // less itself it would be NaN
    A part = 0;
    for (int j = 0; j < lanes.value; ++j) part += exp_of<T>(value[j] - shift);
    sum = sum * exp_of<T>(own - shift) + part;
    own = largest;
  });
  const A maximum = group.reduce(own, Larger{});
  if (own != maximum) sum *= exp_of<T>(own - maximum);
  return {maximum, group.reduce(sum, Plus{})};
}

/// Forward and backward at once, for a loss gradient that is known before: the logits of the row
/// become their gradient. Behind them `padding` elements become 0.
template <class A, class Group, class T>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE CrossEntropyResult<A> cross_entropy_gradient_row(
    const Group& group, T* logits, std::int64_t padding, A dloss,
    const SoftmaxStatistics<A>& statistics, const CrossEntropyRow<A, T>& row) {
  const auto result = cross_entropy_row(group, row, statistics);
  group.sync();  // all have read the target's logit
  cross_entropy_backward_row(group, logits, dloss, statistics, row);
  for (std::int64_t i = group.rank(); i < padding; i += group.size())
    logits[row.classes + i] = static_cast<T>(A(0));
  return result;
}

/// What the gradient of a sum is multiplied with to be that of the loss: its own gradient over what
/// the rows count. Nothing counted: 0, as the rows' own gradients are.
template <class A>
LOCKSTEP_HD LOCKSTEP_ALWAYS_INLINE A gradient_factor(A dloss, A counted) {
  return counted == A(0) ? A(0) : dloss / counted;
}

}  // namespace lockstep::functional::inline LOCKSTEP_ISA
