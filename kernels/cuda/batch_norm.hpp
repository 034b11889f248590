#pragma once

#include "arguments/batch_norm.hpp"
#include "lockstep/core/array_view.hpp"
#include "lockstep/runtime/stream.hpp"

/// @file
/// The pieces of batch normalisation over dimension 1 of [N, C, ...]. Statistics, weights and sums
/// are arrays [C] of the accumulation type; what is absent or constant has stride 0.

namespace lockstep::cuda_kernels {

/// Bytes of scratch memory of the functions that sum over the batch.
std::size_t channel_scratch_bytes(const ArrayView& x);

/// mean = mean of x.
void channel_mean(const ArrayView& mean, const ArrayView& x, void* scratch, StreamRef stream);
/// variance = mean of (x - mean)^2.
void channel_variance(const ArrayView& variance, const ArrayView& mean, const ArrayView& x,
                      void* scratch, StreamRef stream);
/// sums = sum of dy and of dy * (x - mean) * rstd: an array [2, C]. With ReLU dy is what came
/// behind it: dz is written, and summed in its place.
void channel_gradient_sums(const ArrayView& sums, const ArrayView& dy, const ArrayView& x,
                           const ArrayView& mean, const ArrayView& rstd,
                           const kernels::BatchNormRelu& relu, void* scratch, StreamRef stream);

/// to = 1 / sqrt(variance + eps).
void inverse_deviation(const ArrayView& to, const ArrayView& variance, double eps,
                       StreamRef stream);
/// running += momentum * (factor * batch - running); running may have another dtype.
void move_running(const ArrayView& running, const ArrayView& batch, double momentum, double factor,
                  StreamRef stream);

struct Normalisation {
  ArrayView y, x, mean, rstd, weight, bias;  ///< the last four broadcast to x's shape
  ArrayView residual;                        ///< may be absent
  bool relu = false;
};
/// y = (x - mean) * rstd * weight + bias, plus the residual, through ReLU where asked for.
void normalise(const Normalisation& arrays, StreamRef stream);

struct NormaliseGradient {
  ArrayView dx, dy, x, mean, rstd, weight;  ///< the last three broadcast to x's shape
  ArrayView sum, product_sum;               ///< of channel_gradient_sums, likewise
  double count = 1.0;                       ///< elements of a channel; infinite for eval
};
/// dx = rstd * weight * (dy - sum / count - (x - mean) * rstd * product_sum / count).
void normalise_backward(const NormaliseGradient& arrays, StreamRef stream);

}  // namespace lockstep::cuda_kernels
