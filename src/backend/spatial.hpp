#pragma once

#include <array>
#include <cstdint>

#include "lockstep/core/array_view.hpp"
#include "lockstep/runtime/stream.hpp"

namespace lockstep::backend {

/// A height and a width.
using Pair = std::array<std::int64_t, 2>;

/// Geometry of a 2-D convolution.
struct ConvGeometry {
  Pair stride{1, 1};
  Pair padding{0, 0};
  Pair dilation{1, 1};
  std::int64_t groups = 1;
};

/// 2-D convolution (cross-correlation, as every framework means it). Images are [N, C, H, W],
/// weights [C_out, C_in / groups, KH, KW]; each contiguous or channels-last in memory.
class Convolution {
 public:
  virtual ~Convolution() = default;
  /// y = x * w + bias; bias [C_out] may be absent.
  virtual void forward(const ArrayView& y, const ArrayView& x, const ArrayView& weight,
                       const ArrayView& bias, const ConvGeometry& geometry, StreamRef stream) = 0;
  /// dx from dy and the weights.
  virtual void backward_data(const ArrayView& dx, const ArrayView& dy, const ArrayView& weight,
                             const ConvGeometry& geometry, StreamRef stream) = 0;
  /// dweight from dy and x; with `accumulate`, added to what dweight holds.
  virtual void backward_weight(const ArrayView& dweight, const ArrayView& dy, const ArrayView& x,
                               const ConvGeometry& geometry, bool accumulate, StreamRef stream) = 0;
};

/// Geometry of a pooling window. The output's shape is the caller's to compute (ceil mode too).
struct PoolGeometry {
  Pair kernel{1, 1};
  Pair stride{1, 1};
  Pair padding{0, 0};
  bool count_include_pad = true;
};

/// Pooling over [N, C, H, W], each contiguous or channels-last.
class Pooling {
 public:
  virtual ~Pooling() = default;
  /// y = window maximum; `index` (i64, y's shape, contiguous or channels-last) = flat position
  /// h * W + w of the first maximum. NaN counts as the largest.
  virtual void max_forward(const ArrayView& y, const ArrayView& index, const ArrayView& x,
                           const PoolGeometry& geometry, StreamRef stream) = 0;
  /// dx = dy summed at the positions that `index` names.
  virtual void max_backward(const ArrayView& dx, const ArrayView& dy, const ArrayView& index,
                            const PoolGeometry& geometry, StreamRef stream) = 0;
  /// y = window mean. With `count_include_pad` the divisor counts the padding, but not what a
  /// window of ceil mode has beyond it.
  virtual void average_forward(const ArrayView& y, const ArrayView& x, const PoolGeometry& geometry,
                               StreamRef stream) = 0;
  /// dx of the window mean.
  virtual void average_backward(const ArrayView& dx, const ArrayView& dy,
                                const PoolGeometry& geometry, StreamRef stream) = 0;
  /// y = mean over PyTorch's adaptive windows, [floor(i * in / out), ceil((i + 1) * in / out)).
  virtual void adaptive_average_forward(const ArrayView& y, const ArrayView& x,
                                        StreamRef stream) = 0;
  /// dx of the adaptive mean.
  virtual void adaptive_average_backward(const ArrayView& dx, const ArrayView& dy,
                                         StreamRef stream) = 0;
};

/// Batch normalisation over dimension 1 of [N, C, ...] (Ioffe and Szegedy 2015). Statistics,
/// weights and running values have the statistics dtype (f32, or f64 for f64 data) unless they
/// share the data's.
class BatchNorm {
 public:
  virtual ~BatchNorm() = default;
  /// Normalises with the batch's own statistics, keeps mean and 1 / sqrt(var + eps) [C] in
  /// `save_mean` and `save_rstd`, and moves the running values (may be absent) by
  /// running += momentum * (batch - running), the variance unbiased.
  virtual void train(const ArrayView& y, const ArrayView& save_mean, const ArrayView& save_rstd,
                     const ArrayView& running_mean, const ArrayView& running_var,
                     const ArrayView& x, const ArrayView& weight, const ArrayView& bias,
                     double momentum, double eps, StreamRef stream) = 0;
  /// Normalises with the running values.
  virtual void eval(const ArrayView& y, const ArrayView& running_mean, const ArrayView& running_var,
                    const ArrayView& x, const ArrayView& weight, const ArrayView& bias, double eps,
                    StreamRef stream) = 0;
  /// Gradients of `train`; each output may be absent.
  virtual void train_backward(const ArrayView& dx, const ArrayView& dweight, const ArrayView& dbias,
                              const ArrayView& dy, const ArrayView& x, const ArrayView& weight,
                              const ArrayView& save_mean, const ArrayView& save_rstd,
                              StreamRef stream) = 0;
  /// Gradients of `eval`; each output may be absent.
  virtual void eval_backward(const ArrayView& dx, const ArrayView& dweight, const ArrayView& dbias,
                             const ArrayView& dy, const ArrayView& x, const ArrayView& weight,
                             const ArrayView& running_mean, const ArrayView& running_var,
                             double eps, StreamRef stream) = 0;
};

}  // namespace lockstep::backend
