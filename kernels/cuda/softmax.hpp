#pragma once

#include "lockstep/core/array_view.hpp"
#include "lockstep/runtime/stream.hpp"

/// @file
/// Kernels over rows of scores. Contracts: backend/rows.hpp.

namespace lockstep::cuda_kernels {

void softmax(const ArrayView& y, const ArrayView& x, bool log, StreamRef stream);
void softmax_backward(const ArrayView& dx, const ArrayView& dy, const ArrayView& y, bool log,
                      StreamRef stream);

/// The arrays of cross-entropy; here `weight` has the statistics dtype.
struct CrossEntropyArrays {
  ArrayView loss, statistics, row_weight, logits, targets, weight;
};
void cross_entropy(const CrossEntropyArrays& arrays, std::int64_t ignore_index, double smoothing,
                   StreamRef stream);

struct CrossEntropyGradients {
  ArrayView dlogits, dloss, logits, targets, weight, statistics;
};
void cross_entropy_backward(const CrossEntropyGradients& arrays, std::int64_t ignore_index,
                            double smoothing, StreamRef stream);

}  // namespace lockstep::cuda_kernels
