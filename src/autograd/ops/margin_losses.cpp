#include "autograd/ops/common.hpp"
#include "autograd/ops/composed.hpp"
#include "autograd/ops/losses.hpp"
#include "lockstep/autograd/ops/comparison.hpp"

// Losses that compare distances with a margin, and those of distributions that a model names.

namespace lockstep {

LOCKSTEP_OP(cosine_embedding_loss, floating, f32, same)
LOCKSTEP_OP(gaussian_nll_loss, floating, f32, same)
LOCKSTEP_OP(margin_ranking_loss, floating, f32, same)
LOCKSTEP_OP(pairwise_distance, floating, f32, same)
LOCKSTEP_OP(poisson_nll_loss, floating, f32, same)
LOCKSTEP_OP(triplet_margin_loss, floating, f32, same)

using autograd::ComposedOp;

Tensor pairwise_distance(const Tensor& a, const Tensor& b, double p, double eps, bool keepdim) {
  const ComposedOp call(ops::pairwise_distance, a, b);
  return vector_norm(call[0] - call[1] + eps, p, -1, keepdim);
}

Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& target, double margin,
                           Reduction reduction) {
  const ComposedOp call(ops::margin_ranking_loss, a, b, target);
  check_same_shape(call.name(), a, b);
  check_same_shape(call.name(), a, target);
  return reduced(clamp_min(call[2] * (call[1] - call[0]) + margin, 0), reduction);
}

Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginLossOptions& options) {
  const ComposedOp call(ops::triplet_margin_loss, anchor, positive, negative);
  check_same_shape(call.name(), anchor, positive);
  check_same_shape(call.name(), anchor, negative);
  LOCKSTEP_CHECK(options.margin > 0, InvalidArgument, call.name(), ": the margin is ",
                 options.margin, ", it must be above 0");
  const auto distance = [&](std::size_t i, std::size_t j) {
    return pairwise_distance(call[i], call[j], options.p, options.eps);
  };
  Tensor apart = distance(0, 2);
  if (options.swap) apart = minimum(apart, distance(1, 2));
  return reduced(clamp_min(distance(0, 1) - apart + options.margin, 0), options.reduction);
}

Tensor cosine_embedding_loss(const Tensor& a_in, const Tensor& b_in, const Tensor& target,
                             double margin, Reduction reduction) {
  const ComposedOp call(ops::cosine_embedding_loss, a_in, b_in);
  check_same_shape(call.name(), a_in, b_in);
  const bool is_batch = a_in.dim() == 2;
  LOCKSTEP_CHECK((is_batch || a_in.dim() == 1) && target.dim() == a_in.dim() - 1 &&
                     (!is_batch || target.size(0) == a_in.size(0)),
                 InvalidArgument, call.name(), ": a target of shape ", target.shape(),
                 " for inputs of ", a_in.shape(), "; it needs [N] for [N, D], or one for [D]");
  constexpr double epsilon = 1e-12;  // PyTorch's, of squares
  const Tensor &a = call[0], &b = call[1];
  const Tensor squares = (sum(square(a), -1) + epsilon) * (sum(square(b), -1) + epsilon);
  const Tensor cosine = sum(a * b, -1) / sqrt(squares);
  const Tensor apart = where(target == -1, clamp_min(cosine - margin, 0), 0);
  return reduced(where(target == 1, 1 - cosine, apart), reduction);
}

Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& variance,
                         const GaussianNLLLossOptions& options) {
  const ComposedOp call(ops::gaussian_nll_loss, input, target, variance);
  check_same_shape(call.name(), input, target);
  Tensor given = call[2];
  const int last = input.dim() - 1;
  Shape without = input.shape(), of_one = input.shape();
  if (last >= 0) {
    without.erase(last);
    of_one[last] = 1;
  }
  if (given.shape() == without && given.shape() != input.shape()) given = given.unsqueeze(-1);
  LOCKSTEP_CHECK(given.shape() == input.shape() || given.shape() == of_one, InvalidArgument,
                 call.name(), ": a variance of shape ", variance.shape(), " for an input of ",
                 input.shape(), "; it needs that shape, or one for each row");
  LOCKSTEP_CHECK(options.eps > 0, InvalidArgument, call.name(), ": eps is ", options.eps,
                 ", it must be above 0");
  LOCKSTEP_CHECK(!autograd::can_look_at(given) || !any(given.detach() < 0).item<bool>(),
                 InvalidArgument, call.name(), ": a variance is below 0");
  // The gradient passes as though there were no bound, as in PyTorch.
  const Tensor bounded = where(given < options.eps, given + (options.eps - given.detach()), given);
  const Tensor losses = 0.5 * (log(bounded) + square(call[0] - call[1]) / bounded);
  constexpr double half_log_two_pi = 0.91893853320467274178;
  return reduced(options.full ? losses + half_log_two_pi : losses, options.reduction);
}

Tensor poisson_nll_loss(const Tensor& input_in, const Tensor& target_in,
                        const PoissonNLLLossOptions& options) {
  const ComposedOp call(ops::poisson_nll_loss, input_in, target_in);
  check_same_shape(call.name(), input_in, target_in);
  const Tensor &input = call[0], &target = call[1];
  Tensor losses =
      options.log_input ? exp(input) - target * input : input - target * log(input + options.eps);
  if (options.full) {
    const Tensor many = target > 1.0;
    const Tensor count = where(many, target, 1);
    constexpr double two_pi = 6.28318530717958647693;
    losses = losses + where(many, count * log(count) - count + 0.5 * log(two_pi * count), 0);
  }
  return reduced(losses, options.reduction);
}

}  // namespace lockstep
