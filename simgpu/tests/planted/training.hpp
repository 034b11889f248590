#pragma once

#include <cstdint>

#include "lockstep/autograd/ops.hpp"
#include "lockstep/nn/distributed_data_parallel.hpp"
#include "lockstep/nn/nn.hpp"
#include "lockstep/optim/optim.hpp"
#include "lockstep/tensor/factories.hpp"

/// @file
/// A small data-parallel training, for the faults that a copy of lockstep's own source carries.

namespace planted {

/// Two linear layers, each parameter in a bucket of its own.
class Training {
 public:
  explicit Training(lockstep::CommunicatorPtr group,
                    lockstep::DistributedDataParallelOptions options = {})
      : device_(group->device()),
        net_(lockstep::nn::make<lockstep::nn::Sequential>(
            lockstep::nn::make<lockstep::nn::Linear>(width, 24, f32()),
            lockstep::nn::make<lockstep::nn::Linear>(24, 8, f32()))),
        replica_(net_, std::move(group), in_small_buckets(options)),
        optimizer_(replica_.parameters(), {.lr = 0.1, .momentum = 0.9}) {}

  /// Forward, backward, update.
  void step() {
    const auto x = lockstep::ones({4, width}, f32());
    lockstep::Tensor y = replica_(x);
    (y * y).mean().backward();
    optimizer_.step();
    optimizer_.zero_grad();
  }

 private:
  static constexpr std::int64_t width = 16;
  static lockstep::DistributedDataParallelOptions in_small_buckets(
      lockstep::DistributedDataParallelOptions options) {
    options.bucket_bytes = options.first_bucket_bytes = 1;
    return options;
  }
  lockstep::TensorOptions f32() const { return {.dtype = lockstep::DType::f32, .device = device_}; }

  lockstep::Device device_;
  lockstep::nn::ModulePtr<lockstep::nn::Sequential> net_;
  lockstep::DistributedDataParallel<lockstep::nn::Sequential> replica_;
  lockstep::optim::SGD optimizer_;
};

}  // namespace planted
