#pragma once

#include <memory>

#include "backend/cuda/cudnn/plan.hpp"
#include "backend/cuda/cudnn_ops.hpp"

/// @file
/// What plans are made for.

namespace lockstep::backend::cudnn {

/// A GPU of this machine, or one of which there is only a description.
class PlanTarget {
 public:
  /// The stream's GPU. @throws CudnnError.
  PlanTarget(StreamRef stream) : handle_(handle_on(stream)) {}
  /// The GPU described. @throws CudnnError if cuDNN does not understand the description.
  explicit PlanTarget(const GpuDescription& gpu);

  /// Null for a GPU that is only described.
  cudnnHandle_t handle() const { return handle_; }
  /// Makes a graph one for this GPU.
  void prepare(Graph& graph) const;

 private:
  cudnnHandle_t handle_ = nullptr;
  std::shared_ptr<const frontend::DeviceProperties> properties_;
  int sm_version_ = 0;
};

}  // namespace lockstep::backend::cudnn
