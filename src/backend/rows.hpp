#pragma once

#include <cstdint>

#include "lockstep/core/array_view.hpp"
#include "lockstep/runtime/stream.hpp"

namespace lockstep::backend {

/// How cross-entropy weighs its rows.
struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;
  double label_smoothing = 0.0;
};

/// Algorithms over the rows (last dimension) of contiguous arrays. Work runs in stream order.
/// Statistics are f32, or f64 where the data is f64.
class Rows {
 public:
  virtual ~Rows() = default;

  /// y = softmax(x), or log-softmax.
  virtual void softmax(const ArrayView& y, const ArrayView& x, bool log, StreamRef stream) = 0;
  /// dx from dy and y.
  virtual void softmax_backward(const ArrayView& dx, const ArrayView& dy, const ArrayView& y,
                                bool log, StreamRef stream) = 0;

  /// Cross-entropy of logits [n, classes] against targets i64 [n]. `loss` [n] is each row's loss
  /// (0 for ignored rows), `statistics` [n, 2] its maximum m and the sum of exp(logit - m),
  /// `row_weight` [n] what it counts in a mean (the target's weight, 1 without weights, 0 where
  /// ignored); loss already carries the weight. All three are statistics dtype and contiguous.
  /// `weight` [classes] (logits' dtype) may be absent.
  /// @throws InvalidArgument for a target out of range (CPU); on a GPU the row's loss is NaN.
  virtual void cross_entropy(const ArrayView& loss, const ArrayView& statistics,
                             const ArrayView& row_weight, const ArrayView& logits,
                             const ArrayView& targets, const ArrayView& weight,
                             CrossEntropyOptions options, StreamRef stream) = 0;
  /// dlogits given the gradient of each row's loss `dloss` [n] (statistics dtype; stride 0
  /// allowed).
  virtual void cross_entropy_backward(const ArrayView& dlogits, const ArrayView& dloss,
                                      const ArrayView& logits, const ArrayView& targets,
                                      const ArrayView& weight, const ArrayView& statistics,
                                      CrossEntropyOptions options, StreamRef stream) = 0;

  /// y = (x - mean) * rstd * weight + bias over rows of [n, columns]; weight and bias [columns] may
  /// be absent. `mean` and `rstd` [n] are kept for backward.
  virtual void layer_norm(const ArrayView& y, const ArrayView& mean, const ArrayView& rstd,
                          const ArrayView& x, const ArrayView& weight, const ArrayView& bias,
                          double eps, StreamRef stream) = 0;
  /// Gradients; each output may be absent. With `accumulate`, dweight and dbias are added to.
  virtual void layer_norm_backward(const ArrayView& dx, const ArrayView& dweight,
                                   const ArrayView& dbias, const ArrayView& dy, const ArrayView& x,
                                   const ArrayView& weight, const ArrayView& mean,
                                   const ArrayView& rstd, bool accumulate, StreamRef stream) = 0;
  /// y = x * rstd * weight with rstd = 1 / sqrt(mean(x^2) + eps) (Zhang and Sennrich 2019).
  virtual void rms_norm(const ArrayView& y, const ArrayView& rstd, const ArrayView& x,
                        const ArrayView& weight, double eps, StreamRef stream) = 0;
  /// Gradients; each output may be absent. With `accumulate`, dweight is added to.
  virtual void rms_norm_backward(const ArrayView& dx, const ArrayView& dweight, const ArrayView& dy,
                                 const ArrayView& x, const ArrayView& weight, const ArrayView& rstd,
                                 bool accumulate, StreamRef stream) = 0;

  /// out [n, columns] = table[index[i]]; index i64 [n].
  /// @throws InvalidArgument for an index out of range (CPU); NaN rows on a GPU.
  virtual void embedding(const ArrayView& out, const ArrayView& table, const ArrayView& index,
                         StreamRef stream) = 0;
  /// dtable[index[i]] += dy[i], except where index[i] == padding_index. Zeroes dtable first unless
  /// `accumulate`. The order of additions to a row is fixed.
  virtual void embedding_backward(const ArrayView& dtable, const ArrayView& dy,
                                  const ArrayView& index, std::int64_t padding_index,
                                  bool accumulate, StreamRef stream) = 0;
};

}  // namespace lockstep::backend
