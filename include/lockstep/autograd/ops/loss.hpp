#pragma once

#include <cstdint>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Softmax and losses.

namespace lockstep {

/// exp(x) / sum(exp(x)) along a dimension.
Tensor softmax(const Tensor& x, std::int64_t dim);
/// log(softmax(x)) along a dimension, without overflow.
Tensor log_softmax(const Tensor& x, std::int64_t dim);

/// How the losses of all elements become one. Losses of an input and a target (mse_loss, ...) take
/// both of one shape and throw InvalidArgument for others: nothing is broadcast.
enum class Reduction : unsigned char {
  mean,
  sum,
  none,
  batch_mean,  ///< the sum divided by the first extent; not for cross_entropy
};

/// Options of `cross_entropy`.
struct CrossEntropyOptions {
  /// Weight of each class, [classes]; undefined: all 1.
  Tensor weight = {};
  /// Targets of this value count nothing.
  std::int64_t ignore_index = -100;
  /// Share of the target spread evenly over all classes, in [0, 1].
  double label_smoothing = 0.0;
  Reduction reduction = Reduction::mean;
};

/// -log(softmax(logits)[target]), fused. The mean divides by the weight of the counted targets.
/// @param logits [n, classes], [n, classes, d...] or [classes].
/// @param targets i64 class numbers [n], [n, d...] or scalar; or probabilities of logits' shape.
/// @return f32 for bf16 and f16 logits.
/// @throws InvalidArgument for shapes that do not fit, and on the CPU for a target out of range; a
/// GPU's targets the host does not read: such a row's loss and gradient are NaN there.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                     const CrossEntropyOptions& options = {});

/// Options of `linear_cross_entropy`.
struct LinearCrossEntropyOptions {
  Tensor bias = {};  ///< [classes], added to the logits; undefined: none
  /// Targets of this value count nothing.
  std::int64_t ignore_index = -100;
  /// Share of the target spread evenly over all classes, in [0, 1].
  double label_smoothing = 0.0;
  Reduction reduction = Reduction::mean;
  /// Rows whose logits are held at once. 0: as many as 1/24 of a GPU's memory holds, and 128 MiB on
  /// a CPU, in chunks of one size.
  std::int64_t chunk_rows = 0;
};

/// `cross_entropy(linear(input, weight, bias), targets)`, whose logits are never there as a whole:
/// chunks of rows one after the other, in the dtype in which products run. Of a mean or a sum,
/// forward computes the gradients too, in the place of the logits, if recording is on, and backward
/// multiplies them: so the logits are computed once. With `Reduction::none`, and in f16, whose
/// small gradients need the loss' scale before they are rounded, backward computes them again. The
/// weight's gradient is summed in f32 (f64 for f64) over the chunks; rounding elsewhere is that of
/// the two ops, but for a gradient of the input in bf16 or f16, which is rounded before it is
/// divided by the number of targets, too. On a GPU rows of logits that are no multiple of 16 bytes
/// get some columns more, which the loss does not read, and the weight is copied to as many rows.
/// After Liger Kernel (Hsu et al. 2024).
/// @param input [..., in]. @param weight [classes, in]. @param targets i64 class numbers, [...].
/// @return f32 for bf16 and f16 operands; a scalar, or of the targets' shape.
/// @throws as linear and cross_entropy.
Tensor linear_cross_entropy(const Tensor& input, const Tensor& weight, const Tensor& targets,
                            const LinearCrossEntropyOptions& options = {});
/// Options of `nll_loss`, as of `cross_entropy`.
struct NLLLossOptions {
  /// Weight of each class, [classes]; undefined: all 1.
  Tensor weight = {};
  /// Targets of this value count nothing.
  std::int64_t ignore_index = -100;
  Reduction reduction = Reduction::mean;
};
/// -input[target]: cross-entropy over log-probabilities [n, classes, d...], targets [n, d...], or
/// [classes] and a scalar. The mean divides by the weight of the counted targets.
/// @throws InvalidArgument for shapes that do not fit, and on the CPU for a target out of range; on
/// a GPU it counts as a loss of 0, with weights as none.
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets,
                const NLLLossOptions& options);
/// The same without weights.
inline Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets,
                       Reduction reduction = Reduction::mean) {
  return nll_loss(log_probabilities, targets, NLLLossOptions{.reduction = reduction});
}
/// (input - target)^2.
Tensor mse_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);
/// |input - target|.
Tensor l1_loss(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean);
/// Quadratic below beta: 0.5 d^2 / beta, else |d| - 0.5 beta. With a beta of 0, |d|.
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, double beta = 1.0,
                      Reduction reduction = Reduction::mean);
/// The same, with PyTorch's order of arguments.
inline Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, Reduction reduction,
                             double beta = 1.0) {
  return smooth_l1_loss(input, target, beta, reduction);
}
/// Quadratic below delta: 0.5 d^2, else delta * (|d| - 0.5 delta).
Tensor huber_loss(const Tensor& input, const Tensor& target, double delta = 1.0,
                  Reduction reduction = Reduction::mean);
/// The same, with PyTorch's order of arguments.
inline Tensor huber_loss(const Tensor& input, const Tensor& target, Reduction reduction,
                         double delta = 1.0) {
  return huber_loss(input, target, delta, reduction);
}
/// Binary cross-entropy of probabilities against probabilities. No logarithm counts less than -100,
/// as in PyTorch, so that a certain and wrong answer costs 100. A probability outside [0, 1] gives
/// NaN. For the results of a sigmoid, the function of logits is more accurate.
/// @param weight of each element's loss, broadcast; may be undefined.
Tensor binary_cross_entropy(const Tensor& probabilities, const Tensor& targets,
                            const Tensor& weight = {}, Reduction reduction = Reduction::mean);
/// Binary cross-entropy of logits against probabilities, without overflow.
/// @param weight of each element's loss, broadcast; may be undefined.
/// @param pos_weight factor of the positive term, broadcast; may be undefined.
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& targets,
                                        const Tensor& weight = {}, const Tensor& pos_weight = {},
                                        Reduction reduction = Reduction::mean);
/// target * (log(target) - input) for log-probabilities `input`; NaN where a target is below 0. As
/// in PyTorch the mean is over all elements; the divergence itself, of each row of a batch, is
/// `Reduction::batch_mean`.
/// @param log_target `target` holds logarithms of probabilities, too.
Tensor kl_div(const Tensor& input, const Tensor& target, Reduction reduction = Reduction::mean,
              bool log_target = false);

/// The p-norm of a - b + eps along the last dimension, in which a and b have points. Others are
/// broadcast.
Tensor pairwise_distance(const Tensor& a, const Tensor& b, double p = 2, double eps = 1e-6,
                         bool keepdim = false);
/// max(0, margin - target (a - b)): a is to be the larger one where the target is 1, b where -1.
Tensor margin_ranking_loss(const Tensor& a, const Tensor& b, const Tensor& target,
                           double margin = 0.0, Reduction reduction = Reduction::mean);

/// Options of `triplet_margin_loss`.
struct TripletMarginLossOptions {
  double margin = 1.0;  ///< above 0
  double p = 2;         ///< of the norm
  double eps = 1e-6;    ///< added to each difference
  bool swap = false;    ///< a negative may be near the positive rather than the anchor
  Reduction reduction = Reduction::mean;
};
/// max(0, d(anchor, positive) - d(anchor, negative) + margin), d being `pairwise_distance`, of
/// points [N, D] or [D]. With `swap` the second is the smaller one of it and d(positive, negative).
/// @throws InvalidArgument for different shapes, and a margin that is not above 0.
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative,
                           const TripletMarginLossOptions& options = {});
/// 1 - cos(a, b) where the target is 1, max(0, cos(a, b) - margin) where it is -1, else 0.
/// @param a, b [N, D] or [D]. @param target [N], or without dimensions.
Tensor cosine_embedding_loss(const Tensor& a, const Tensor& b, const Tensor& target,
                             double margin = 0.0, Reduction reduction = Reduction::mean);

/// Options of `gaussian_nll_loss`.
struct GaussianNLLLossOptions {
  bool full = false;  ///< with the constant log(2 pi) / 2
  double eps = 1e-6;  ///< no variance counts less; its gradient is as though it did
  Reduction reduction = Reduction::mean;
};
/// Negative logarithm of a normal density: (log(variance) + (input - target)^2 / variance) / 2.
/// @param variance of input's shape, or one for each row: that shape with a last extent of 1, or
/// without it. @throws InvalidArgument for other shapes, and on the CPU for one below 0.
Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& variance,
                         const GaussianNLLLossOptions& options = {});

/// Options of `poisson_nll_loss`.
struct PoissonNLLLossOptions {
  bool log_input = true;  ///< the input is the logarithm of the rate
  bool full = false;      ///< with Stirling's approximation of log(target!), for targets above 1
  double eps = 1e-8;      ///< added to a rate before its logarithm is taken
  Reduction reduction = Reduction::mean;
};
/// Negative logarithm of a Poisson probability: exp(input) - target input, or without `log_input`
/// input - target log(input + eps).
Tensor poisson_nll_loss(const Tensor& input, const Tensor& target,
                        const PoissonNLLLossOptions& options = {});

}  // namespace lockstep
