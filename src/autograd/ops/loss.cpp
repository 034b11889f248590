#include "lockstep/autograd/ops/loss.hpp"

#include "autograd/ops/common.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/reduce.hpp"
#include "lockstep/autograd/ops/shape.hpp"

namespace lockstep {
namespace {

Tensor reduced(const Tensor& losses, Reduction reduction) {
  switch (reduction) {
    case Reduction::mean: return mean(losses);
    case Reduction::sum: return sum(losses);
    case Reduction::none: break;
  }
  return losses;
}

}  // namespace

Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets, Reduction reduction) {
  const Tensor picked = gather(log_probabilities, 1, targets.unsqueeze(1));
  return reduced(neg(picked.squeeze(1)), reduction);
}

Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  return reduced(square(input - target), reduction);
}

Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  return reduced(abs(input - target), reduction);
}

Tensor huber_loss(const Tensor& input, const Tensor& target, double delta, Reduction reduction) {
  LOCKSTEP_CHECK(delta > 0, InvalidArgument, "huber_loss: delta must be positive, got ", delta);
  const Tensor distance = abs(input - target);
  // With near = min(d, delta), both branches are near * (d - near / 2).
  const Tensor near = clamp(distance, 0.0, delta);
  return reduced(near * (distance - near * 0.5), reduction);
}

Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, double beta, Reduction reduction) {
  return huber_loss(input, target, beta, reduction) / beta;
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& targets,
                                        const Tensor& positive_weight, Reduction reduction) {
  // -w t log(s(x)) - (1 - t) log(1 - s(x)), with log(s(x)) = -softplus(-x).
  const Tensor miss = (1.0 - targets) * logits;
  const Tensor surprise = softplus(neg(logits));
  if (!positive_weight.defined()) return reduced(miss + surprise, reduction);
  const Tensor factor = 1.0 + (positive_weight - 1.0) * targets;
  return reduced(miss + factor * surprise, reduction);
}

Tensor kl_div(const Tensor& input, const Tensor& target, bool batch_mean) {
  const Tensor zero = zeros({}, target.options());
  const Tensor positive = gt(target, zero);
  const Tensor safe = where(positive, target, ones({}, target.options()));
  const Tensor total = sum(target * (log(safe) - input));
  return batch_mean ? total / static_cast<double>(input.size(0)) : total;
}

}  // namespace lockstep
