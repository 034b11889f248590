#pragma once

#include <type_traits>
#include <utility>
#include <variant>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// A loss that knows how much it counts.

namespace lockstep::train {

/// What the loss function of a Step returns: a mean, and of how much. Of the weights' sum over the
/// parts of all ranks each part's loss, and gradient, counts as its own weight is a share, so that
/// a training is the same on any number of them:
///
///     const Tensor counted = ne(in[1], -100).sum();  // tokens that are not padding
///     return train::WeightedLoss(cross_entropy(ddp(in[0]), in[1]), counted);
struct WeightedLoss {
  /// Counts by the rows of the first of its inputs. Not explicit: a loss alone is one.
  WeightedLoss(Tensor mean) : loss(std::move(mean)) {}
  /// Counts by a number, such as that of tokens, not negative. A captured step refuses it, since
  /// its launches would repeat the number: it runs eagerly.
  template <class N>
  requires std::is_arithmetic_v<N> WeightedLoss(Tensor mean, N count)
      : loss(std::move(mean)), weight(static_cast<double>(count)) {}
  /// Counts by one element on its device, of any dtype, not negative, for which the host does not
  /// wait.
  WeightedLoss(Tensor mean, Tensor count) : loss(std::move(mean)), weight(std::move(count)) {}

  Tensor loss;                                               ///< one element
  std::variant<std::monostate, double, Tensor> weight = {};  ///< none: the rows of its inputs
};

}  // namespace lockstep::train
