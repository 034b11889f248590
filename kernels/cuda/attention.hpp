#pragma once

#include "lockstep/core/array_view.hpp"
#include "lockstep/runtime/stream.hpp"

/// @file
/// What attention does between its matrix products, for one batch entry: arrays [heads, queries,
/// keys] of f32 or f64, contiguous.

namespace lockstep::cuda_kernels {

struct AttentionScores {
  ArrayView scores;  ///< products of queries and keys; becomes probabilities, in place
  ArrayView lse;     ///< [heads, queries]: written, or read with `given_lse`
  ArrayView mask;    ///< broadcast to scores' shape, bool or floating; may be absent
  double scale = 1.0;
  bool causal = false;
  bool given_lse = false;
};

/// scores = softmax(scale * scores + mask). A query that sees nothing gets zeros.
void attention_probabilities(const AttentionScores& arrays, StreamRef stream);

/// gradient = scale * p * (gradient - sum of p * gradient over the row), in place.
void attention_score_gradient(const ArrayView& gradient, const ArrayView& probabilities,
                              double scale, StreamRef stream);

}  // namespace lockstep::cuda_kernels
