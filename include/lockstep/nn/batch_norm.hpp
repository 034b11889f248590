#pragma once

#include <cstdint>
#include <string>

#include "lockstep/nn/member.hpp"

/// @file
/// Batch normalisation.

namespace lockstep::nn {

/// Options of BatchNorm1d and BatchNorm2d.
struct BatchNormLayerOptions {
  std::int64_t channels = 0;
  double eps = 1e-5;
  double momentum = 0.1;  ///< share of the batch in the new running statistics
  bool affine = true;     ///< learn a weight and a bias
  bool relu = false;      ///< end with ReLU, in the same pass
  TensorOptions tensor = {};
};

/// Normalises each channel, in training by the batch's statistics, in evaluation by their running
/// means (Ioffe and Szegedy 2015); a residual and ReLU may follow in the same pass. What
/// BatchNorm1d and BatchNorm2d share.
class BatchNorm : public Module {
 public:
  using Options = BatchNormLayerOptions;
  std::string describe() const override;

 protected:
  /// @param dims numbers of dimensions that inputs may have.
  BatchNorm(const BatchNormLayerOptions& options, Dims dims);
  Tensor normalize(const Tensor& x, const Tensor& residual);

 private:
  BatchNormLayerOptions options_;
  Dims dims_;

 public:
  Parameter weight;            ///< [channels], or undefined
  Parameter bias;              ///< [channels], or undefined
  Buffer running_mean;         ///< [channels]
  Buffer running_var;          ///< [channels], unbiased
  Buffer num_batches_tracked;  ///< i64 scalar: training batches seen
};

/// Batch normalisation of images [N, C, H, W].
class BatchNorm2d : public BatchNorm {
 public:
  /// @throws InvalidArgument for channels below 1.
  explicit BatchNorm2d(const BatchNormLayerOptions& options) : BatchNorm(options, {4}) {}
  /// With the defaults.
  explicit BatchNorm2d(std::int64_t channels)
      : BatchNorm2d(BatchNormLayerOptions{.channels = channels}) {}
  /// @param x [N, C, H, W].
  /// @param residual of x's shape and dtype, added before ReLU; may be undefined.
  /// @return x's shape.
  Tensor forward(const Tensor& x, const Tensor& residual = {}) { return normalize(x, residual); }
};

/// Batch normalisation of vectors [N, C] or sequences [N, C, L].
class BatchNorm1d : public BatchNorm {
 public:
  /// @throws InvalidArgument for channels below 1.
  explicit BatchNorm1d(const BatchNormLayerOptions& options) : BatchNorm(options, {2, 3}) {}
  /// With the defaults.
  explicit BatchNorm1d(std::int64_t channels)
      : BatchNorm1d(BatchNormLayerOptions{.channels = channels}) {}
  /// @param x [N, C] or [N, C, L].
  /// @param residual of x's shape and dtype, added before ReLU; may be undefined.
  /// @return x's shape.
  Tensor forward(const Tensor& x, const Tensor& residual = {}) { return normalize(x, residual); }
};

}  // namespace lockstep::nn
