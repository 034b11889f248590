#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "lockstep/comm/communicator.hpp"
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
  /// Keep running statistics; without them evaluation, too, goes by the batch's.
  bool track_running_stats = true;
  TensorOptions tensor = {};
};

/// Normalises each channel, in training by the batch's statistics, in evaluation by their running
/// means (Ioffe and Szegedy 2015); a residual and ReLU may follow in the same pass. What
/// BatchNorm1d and BatchNorm2d share.
class BatchNorm : public Module {
 public:
  using Options = BatchNormLayerOptions;
  std::string describe() const override;
  /// Training batches count as one with those of the group's other ranks from now on, as in
  /// parallel::sync_batch_norm; null: no longer. All ranks do the same.
  void synchronize(CommunicatorPtr group) { group_ = std::move(group); }
  /// The group, or null.
  const CommunicatorPtr& group() const noexcept { return group_; }

 protected:
  /// @param dims numbers of dimensions that inputs may have.
  BatchNorm(const BatchNormLayerOptions& options, Dims dims);
  Tensor normalize(const Tensor& x, const Tensor& residual);

 private:
  BatchNormLayerOptions options_;
  Dims dims_;
  CommunicatorPtr group_;

 public:
  Parameter weight;            ///< [channels], or undefined
  Parameter bias;              ///< [channels], or undefined
  Buffer running_mean;         ///< [channels], or undefined
  Buffer running_var;          ///< [channels], unbiased, or undefined
  Buffer num_batches_tracked;  ///< i64 scalar: training batches seen; or undefined
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

/// Batch normalisation by the statistics of all ranks of a group: of vectors [N, C], sequences
/// [N, C, L] or images [N, C, H, W]. In evaluation as the other two.
class SyncBatchNorm : public BatchNorm {
 public:
  /// @throws InvalidArgument for channels below 1.
  SyncBatchNorm(const BatchNormLayerOptions& options, CommunicatorPtr group)
      : BatchNorm(options, {2, 3, 4}) {
    synchronize(std::move(group));
  }
  /// @param x [N, C], [N, C, L] or [N, C, H, W]; N may differ between the ranks, and be 0.
  /// @param residual of x's shape and dtype, added before ReLU; may be undefined.
  /// @return x's shape.
  Tensor forward(const Tensor& x, const Tensor& residual = {}) { return normalize(x, residual); }
};

/// Makes all batch norms of a model synchronized ones of a group: `convert_sync_batchnorm(*model,
/// group)`, before it is wrapped. Parameters and state dict stay as they are.
/// @return how many there are.
std::size_t convert_sync_batchnorm(Module& module, const CommunicatorPtr& group);

}  // namespace lockstep::nn
