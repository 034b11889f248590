#pragma once

#include <string_view>

#include "lockstep/autograd/ops/loss.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/reduce.hpp"
#include "lockstep/core/error.hpp"

/// @file
/// What losses have in common.

namespace lockstep {

/// Losses of elements, made one.
inline Tensor reduced(const Tensor& losses, Reduction reduction) {
  switch (reduction) {
    case Reduction::mean: return mean(losses);
    case Reduction::sum: return sum(losses);
    case Reduction::batch_mean: return sum(losses) / losses.size(0);
    case Reduction::none: break;
  }
  return losses;
}

/// A loss compares element by element: [N, 1] against [N] would broadcast to [N, N].
/// @throws InvalidArgument for different shapes.
inline void check_same_shape(std::string_view loss, const Tensor& input, const Tensor& target) {
  LOCKSTEP_CHECK(input.shape() == target.shape(), InvalidArgument, loss, ": an input of shape ",
                 input.shape(), " and a target of shape ", target.shape(),
                 "; they must be the same (reshape one of them)");
}

namespace autograd {

/// nll_loss in the name of an op.
Tensor picked_loss(const OpDescriptor& op, const Tensor& log_probabilities, const Tensor& targets,
                   const NLLLossOptions& options);

}  // namespace autograd

}  // namespace lockstep
