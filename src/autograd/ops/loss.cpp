#include "lockstep/autograd/ops/loss.hpp"

#include "autograd/ops/common.hpp"
#include "autograd/ops/composed.hpp"
#include "autograd/ops/losses.hpp"
#include "lockstep/autograd/ops/comparison.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/reduce.hpp"
#include "lockstep/autograd/ops/shape.hpp"

namespace lockstep {

LOCKSTEP_OP(kl_div, floating, f32, same)
LOCKSTEP_OP(l1_loss, floating, f32, same)
LOCKSTEP_OP(nll_loss, floating, f32, same)
LOCKSTEP_OP(smooth_l1_loss, floating, f32, same)

namespace {

using autograd::ComposedOp;

void check_broadcasts(std::string_view loss, std::string_view what, const Tensor& weight,
                      const Tensor& input) {
  if (!weight.defined()) return;
  const int missing = input.dim() - weight.dim();
  bool fits = missing >= 0;
  for (int d = 0; fits && d < weight.dim(); ++d)
    fits = weight.size(d) == 1 || weight.size(d) == input.size(d + missing);
  LOCKSTEP_CHECK(fits, InvalidArgument, loss, ": ", what, " of shape ", weight.shape(),
                 " does not broadcast to the input's ", input.shape());
}

/// Of targets that the host can read. @throws InvalidArgument for one that is no class.
void check_classes(std::string_view loss, const Tensor& targets, std::int64_t classes,
                   std::int64_t ignored) {
  if (!autograd::can_look_at(targets)) return;
  const Tensor rows = targets.contiguous();
  const auto* const target = rows.data<std::int64_t>();
  for (std::int64_t i = 0; i < rows.numel(); ++i)
    LOCKSTEP_CHECK((target[i] >= 0 && target[i] < classes) || target[i] == ignored, InvalidArgument,
                   loss, ": target ", target[i], " at ", i, " is outside [0, ", classes,
                   ") and is not the ignored ", ignored);
}

/// Cross-entropies of logits, with a factor of what a positive target costs.
Tensor of_logits(const Tensor& logits_in, const Tensor& targets_in, const Tensor& pos_weight) {
  const ComposedOp call(traits(BinaryOp::binary_cross_entropy_with_logits), logits_in, targets_in);
  const Tensor &logits = call[0], &targets = call[1];
  // -p t log(s(x)) - (1 - t) log(1 - s(x)), with log(s(x)) = -softplus(-x).
  return (1.0 - targets) * logits + (1.0 + (pos_weight - 1.0) * targets) * softplus(neg(logits));
}

}  // namespace

Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets,
                const NLLLossOptions& options) {
  return autograd::picked_loss(ops::nll_loss, log_probabilities, targets, options);
}

Tensor autograd::picked_loss(const OpDescriptor& op, const Tensor& log_probabilities,
                             const Tensor& targets, const NLLLossOptions& options) {
  const auto& [weight, ignore_index, reduction] = options;
  const ComposedOp call(op, log_probabilities);
  if (log_probabilities.dim() == 1 && targets.dim() == 0) {
    const Tensor loss =
        picked_loss(op, log_probabilities.unsqueeze(0), targets.unsqueeze(0), options);
    return reduction == Reduction::none ? loss.reshape({}) : loss;
  }
  bool fits = log_probabilities.dim() >= 2 && targets.dim() == log_probabilities.dim() - 1;
  for (int i = 0; fits && i < targets.dim(); ++i)
    fits = targets.size(i) == log_probabilities.size(i == 0 ? 0 : i + 1);
  LOCKSTEP_CHECK(fits, InvalidArgument, call.name(), ": log-probabilities of shape ",
                 log_probabilities.shape(), " and targets of shape ", targets.shape(),
                 "; expected [N, C, d...] and [N, d...], or [C] and a scalar");
  autograd::check_index(call.name(), log_probabilities, targets);
  const std::int64_t classes = log_probabilities.size(1);
  check_classes(call.name(), targets, classes, ignore_index);
  LOCKSTEP_CHECK(!weight.defined() || weight.shape() == Shape{classes}, InvalidArgument,
                 call.name(), ": weights of shape ", weight.shape(), " for ", classes, " classes");
  if (weight.defined()) autograd::check_alike(call.name(), call[0], weight);
  const Tensor counted = targets != ignore_index;
  const Tensor classes_of = where(counted, targets, 0);
  const Tensor picked = gather(call[0], 1, classes_of.unsqueeze(1)).squeeze(1);
  const DType dtype = picked.dtype(), wide = autograd::statistics_dtype(dtype);
  Tensor losses = where(counted, -picked, 0).to(wide), counts = counted.to(wide);
  if (weight.defined()) {
    counts = counts *
             index_select(weight, 0, classes_of.reshape({-1})).reshape(targets.shape()).to(wide);
    losses = losses * counts;
  }
  return (reduction == Reduction::mean ? sum(losses) / sum(counts) : reduced(losses, reduction))
      .to(dtype);
}

Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  check_same_shape(traits(BinaryOp::mse_loss).name, input, target);
  return reduced(autograd::binary(BinaryOp::mse_loss, input, target), reduction);
}

Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction) {
  const ComposedOp call(ops::l1_loss, input, target);
  check_same_shape(call.name(), input, target);
  return reduced(abs(call[0] - call[1]), reduction);
}

Tensor huber_loss(const Tensor& input, const Tensor& target, double delta, Reduction reduction) {
  const std::string_view op = traits(BinaryOp::huber_loss).name;
  check_same_shape(op, input, target);
  LOCKSTEP_CHECK(delta > 0, InvalidArgument, op, ": delta must be positive, got ", delta);
  return reduced(autograd::binary(BinaryOp::huber_loss, input, target, {.alpha = delta}),
                 reduction);
}

Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, double beta, Reduction reduction) {
  const ComposedOp call(ops::smooth_l1_loss, input, target);
  check_same_shape(call.name(), input, target);
  LOCKSTEP_CHECK(beta >= 0, InvalidArgument, call.name(), ": beta is ", beta,
                 "; it must be a number from 0 on");
  if (beta == 0) return reduced(abs(call[0] - call[1]), reduction);
  const DType dtype = call[0].dtype(), wide = autograd::statistics_dtype(dtype);
  return (huber_loss(call[0].to(wide), call[1].to(wide), beta, reduction) / beta).to(dtype);
}

Tensor binary_cross_entropy(const Tensor& probabilities, const Tensor& targets,
                            const Tensor& weight, Reduction reduction) {
  check_same_shape(traits(BinaryOp::binary_cross_entropy).name, probabilities, targets);
  check_broadcasts(traits(BinaryOp::binary_cross_entropy).name, "a weight", weight, probabilities);
  const Tensor losses = autograd::binary(BinaryOp::binary_cross_entropy, probabilities, targets);
  return reduced(weight.defined() ? losses * weight : losses, reduction);
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& targets,
                                        const Tensor& weight, const Tensor& pos_weight,
                                        Reduction reduction) {
  constexpr auto op = BinaryOp::binary_cross_entropy_with_logits;
  check_same_shape(traits(op).name, logits, targets);
  const auto check = [&](std::string_view what, const Tensor& each) {
    check_broadcasts(traits(op).name, what, each, logits);
    if (each.defined()) autograd::check_weight(traits(op).name, what, each, logits);
  };
  check("a weight", weight);
  check("a positive weight", pos_weight);
  const Tensor losses = pos_weight.defined() ? of_logits(logits, targets, pos_weight)
                                             : autograd::binary(op, logits, targets);
  return reduced(weight.defined() ? losses * weight : losses, reduction);
}

Tensor kl_div(const Tensor& input_in, const Tensor& target_in, Reduction reduction,
              bool log_target) {
  const ComposedOp call(ops::kl_div, input_in, target_in);
  check_same_shape(call.name(), input_in, target_in);
  const Tensor &input = call[0], &target = call[1];
  if (log_target) return reduced(exp(target) * (target - input), reduction);
  const Tensor safe = where(target == 0.0, 1.0, target);  // NaN where a logarithm is none
  return reduced(target * (log(safe) - input), reduction);
}

}  // namespace lockstep
