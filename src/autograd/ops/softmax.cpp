#include <algorithm>

#include "autograd/ops/common.hpp"
#include "autograd/ops/composed.hpp"
#include "autograd/ops/losses.hpp"
#include "autograd/ops/recorded.hpp"
#include "lockstep/autograd/ops/comparison.hpp"
#include "lockstep/autograd/ops/indexing.hpp"
#include "lockstep/autograd/ops/loss.hpp"
#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/autograd/ops/reduce.hpp"
#include "lockstep/autograd/ops/shape.hpp"

namespace lockstep {

LOCKSTEP_OP(cross_entropy, floating, f32, same)
LOCKSTEP_OP(log_softmax, floating, f32, same)
LOCKSTEP_OP(softmax, floating, f32, same)

namespace {

using namespace autograd;

Tensor recorded_softmax_gradient(const Tensor& dy_in, const Tensor& y_in, bool log, int dim) {
  const DType wide = statistics_dtype(dy_in.dtype());
  const Tensor dy = dy_in.to(wide), y = y_in.to(wide);
  const Tensor dx = log ? dy - exp(y) * sum(dy, {dim}, true) : y * (dy - sum(dy * y, {dim}, true));
  return dx.to(dy_in.dtype());
}

/// @param dim of the rows, as kernels take it
Tensor softmax_rows(const OpDescriptor& op, const Tensor& x_in, bool log, int dim = -1) {
  const OpCall call(op, x_in);
  const Tensor x = call.dense(0);
  Tensor y = empty(x.shape(), x.options());
  backend_of(x).softmax.forward({.y = y.view(), .x = x.view(), .log = log, .dim = dim},
                                stream_of(x));
  if (!call.recording()) return y;
  return call.record(
      y, Differentiable{[log, dim, y = SavedTensor::of_result(y)](const Tensor& dy_in,
                                                                  InputGradients& inputs) {
        if (inputs.creates_graph())
          return inputs.set(0, recorded_softmax_gradient(dy_in, inputs.result(y), log, dim));
        const Tensor dy = dy_in.contiguous();
        Tensor dx = empty(dy.shape(), dy.options());
        backend_of(dy).softmax.backward(
            {.dx = dx.view(), .dy = dy.view(), .y = y.get().view(), .log = log, .dim = dim},
            stream_of(dy));
        inputs.set(0, std::move(dx));
      }});
}

Tensor softmax_along(const OpDescriptor& op, const Tensor& x, std::int64_t dim, bool log) {
  if (x.dim() == 0)
    return of_one_element(x, [&](const Tensor& row) { return softmax_along(op, row, dim, log); });
  const int d = wrap_dim(dim, x.dim());
  if (d == x.dim() - 1) return softmax_rows(op, x, log);
  if (x.device().is_cpu()) return softmax_rows(op, x, log, d);
  return softmax_rows(op, x.transpose(d, -1), log).transpose(d, -1);
}

/// [n, classes, d...] as rows [n * d..., classes].
Tensor as_rows(const Tensor& logits) {
  if (logits.dim() == 1) return logits.unsqueeze(0);
  if (logits.dim() == 2) return logits;
  Dims order{0};
  for (int i = 2; i < logits.dim(); ++i) order.push_back(i);
  order.push_back(1);
  // Not -1: what an empty batch leaves for it could be anything.
  const std::int64_t rows = logits.size(1) > 0 ? logits.numel() / logits.size(1) : 0;
  return logits.permute(order).reshape({rows, logits.size(1)});
}

/// Loss of each row, already weighted, and what each row counts in a mean.
struct RowLosses {
  Tensor loss, weight;
};

/// Mixed precision need not convert logits alone: kernels compute in f32, and give f32 losses.
constexpr OpDescriptor unweighted_cross_entropy{.name = ops::cross_entropy.name};

/// The same losses from recorded ops.
Tensor composed_losses(const Tensor& logits, const Tensor& targets, const Tensor& weight,
                       const kernels::CrossEntropyOptions& options) {
  const Tensor scores = log_softmax(logits.to(statistics_dtype(logits.dtype())), 1);
  const Tensor counted = targets != options.ignore_index;
  const Tensor classes = where(counted, targets, 0).unsqueeze(1);
  const Tensor weighted = weight.defined() ? scores * weight.to(scores.dtype()) : scores;
  Tensor losses = -gather(weighted, 1, classes).squeeze(1);
  if (options.label_smoothing > 0)
    losses = lerp(losses, -mean(weighted, {1}), options.label_smoothing);
  return where(counted, losses, 0);
}

RowLosses row_losses(const Tensor& logits_in, const Tensor& targets_in,
                     const CrossEntropyOptions& options) {
  const OpCall call(options.weight.defined() ? ops::cross_entropy : unweighted_cross_entropy,
                    logits_in, options.weight);
  const Tensor logits = call.dense(0), weight = call.dense(1), targets = targets_in.contiguous();
  const TensorOptions statistics{statistics_dtype(logits.dtype()), logits.device()};
  const Shape rows{logits.size(0)};
  const Tensor loss = empty(rows, statistics), row_weight = empty(rows, statistics),
               kept = empty({logits.size(0), 2}, statistics);
  const kernels::CrossEntropyOptions row_options{options.ignore_index, options.label_smoothing};
  backend_of(logits).cross_entropy.forward({.loss = loss.view(),
                                            .statistics = kept.view(),
                                            .row_weight = row_weight.view(),
                                            .logits = logits.view(),
                                            .targets = targets.view(),
                                            .weight = view_or_absent(weight),
                                            .options = row_options},
                                           stream_of(logits));
  if (!call.recording()) return {loss, row_weight};
  const Tensor recorded = call.record(
      loss, Differentiable{[row_options, logits = SavedTensor(logits),
                            targets = SavedTensor(targets), weight = SavedTensor(weight),
                            kept = SavedTensor(kept)](const Tensor& dloss, InputGradients& inputs) {
        const Tensor& x = logits.get();
        if (inputs.creates_graph())
          return set_composed(
              inputs, dloss, {inputs.operand(0, logits)}, [&](std::span<const Tensor> in) {
                return composed_losses(in[0], targets.get(), weight.get(), row_options);
              });
        Tensor dx = empty(x.shape(), x.options());
        backend_of(x).cross_entropy.backward({.dlogits = dx.view(),
                                              .dloss = dloss.view(),
                                              .logits = x.view(),
                                              .targets = targets.get().view(),
                                              .weight = view_or_absent(weight.get()),
                                              .statistics = kept.get().view(),
                                              .options = row_options},
                                             stream_of(x));
        inputs.set(0, std::move(dx));
      }});
  return {recorded, row_weight};
}

/// Targets given as probabilities. @return f32 for 16 bits
Tensor soft_cross_entropy(const Tensor& logits_in, const Tensor& targets_in,
                          const CrossEntropyOptions& options) {
  const DType wide = statistics_dtype(logits_in.dtype());
  const Tensor logits = logits_in.to(wide), targets = targets_in.to(wide);
  const std::int64_t class_dim = logits.dim() == 1 ? 0 : 1;
  const double classes = static_cast<double>(logits.size(class_dim));
  const double smoothing = options.label_smoothing;
  Tensor share = smoothing > 0 ? affine(targets, 1 - smoothing, smoothing / classes) : targets;
  if (options.weight.defined()) {
    Shape along = Dims::filled(logits.dim(), 1);
    along[static_cast<int>(class_dim)] = options.weight.numel();
    share = share * options.weight.to(wide).reshape(along);
  }
  const Tensor losses = neg(sum(share * log_softmax(logits, class_dim), {class_dim}));
  if (options.reduction == Reduction::none) return losses;
  const Tensor total = sum(losses);
  return options.reduction == Reduction::sum ? total : total / static_cast<double>(losses.numel());
}

/// Whether the losses of images are sooner there from log-probabilities that lie as the logits do:
/// rows of classes would be copies, which cost more than they gain where an image has some pixels
/// for its classes. 16 bits would round them.
bool lies_by_class(const Tensor& logits, const Tensor& weight) {
  if (logits.dim() <= 2 || logits.numel() == 0) return false;
  const std::int64_t classes = logits.size(1), pixels = logits.numel() / logits.size(0) / classes;
  return pixels >= std::max<std::int64_t>(64, classes / 16) && logits.is_contiguous() &&
         logits.device().is_cpu() && size_of(logits.dtype()) >= 4 &&
         (!weight.defined() || weight.dtype() == logits.dtype());
}

/// The logits, with 0 for those whose target is ignored: what they are must not reach a gradient.
Tensor without_ignored(const Tensor& logits, const Tensor& targets, std::int64_t ignored) {
  const Tensor is_ignored = targets == ignored;
  const bool is_known = can_look_at(targets);
  if (is_known && !any(is_ignored).item<bool>()) return logits;
  return masked_fill(logits, is_ignored.unsqueeze(1), 0.0);
}

void check_cross_entropy(const Tensor& logits, const Tensor& targets,
                         const CrossEntropyOptions& options) {
  check_operand(ops::cross_entropy, logits);
  LOCKSTEP_CHECK(logits.dim() >= 1, InvalidArgument, ops::cross_entropy.name,
                 ": logits need a class dimension");
  LOCKSTEP_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1, InvalidArgument,
                 ops::cross_entropy.name, ": label_smoothing ", options.label_smoothing,
                 " is outside [0, 1]");
  const std::int64_t classes = logits.size(logits.dim() == 1 ? 0 : 1);
  if (options.weight.defined()) {
    LOCKSTEP_CHECK(options.weight.shape() == Shape{classes}, InvalidArgument,
                   ops::cross_entropy.name, ": weight of shape ", options.weight.shape(), " for ",
                   classes, " classes");
    check_weight(ops::cross_entropy.name, "the weight", options.weight, logits);
  }
  Shape expected = logits.shape();
  expected.erase(logits.dim() == 1 ? 0 : 1);
  LOCKSTEP_CHECK(targets.dtype() == DType::i64, InvalidArgument, ops::cross_entropy.name,
                 ": targets have dtype ", targets.dtype(),
                 "; class numbers are i64, probabilities have the shape and dtype of the logits");
  LOCKSTEP_CHECK(targets.shape() == expected, InvalidArgument, ops::cross_entropy.name,
                 ": logits of shape ", logits.shape(), " need targets of shape ", expected,
                 ", got ", targets.shape());
  LOCKSTEP_CHECK(targets.device() == logits.device(), InvalidArgument, ops::cross_entropy.name,
                 ": logits are on ", logits.device(), ", targets on ", targets.device());
}

}  // namespace

Tensor softmax(const Tensor& x, std::int64_t dim) {
  return softmax_along(ops::softmax, x, dim, false);
}
Tensor log_softmax(const Tensor& x, std::int64_t dim) {
  return softmax_along(ops::log_softmax, x, dim, true);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                     const CrossEntropyOptions& options) {
  LOCKSTEP_CHECK(options.reduction != Reduction::batch_mean, InvalidArgument,
                 ops::cross_entropy.name,
                 ": reduction batch_mean; its mean is over the counted targets");
  if (is_floating(targets.dtype()) && targets.shape() == logits.shape()) {
    const ComposedOp call(ops::cross_entropy, logits, targets);
    if (call[0].dtype() == call[1].dtype()) return soft_cross_entropy(call[0], call[1], options);
  }
  check_cross_entropy(logits, targets, options);
  if (lies_by_class(logits, options.weight) && options.label_smoothing == 0)
    return picked_loss(ops::cross_entropy,
                       log_softmax(without_ignored(logits, targets, options.ignore_index), 1),
                       targets,
                       {options.weight.defined() ? options.weight.detach() : Tensor(),
                        options.ignore_index, options.reduction});
  const auto [losses, counts] =
      row_losses(as_rows(logits), targets.reshape({targets.numel()}), options);
  if (options.reduction == Reduction::none) return losses.reshape(targets.shape());
  const Tensor total = sum(losses);
  return options.reduction == Reduction::sum ? total : total / sum(counts);
}

}  // namespace lockstep
