#pragma once

#include <optional>

#include "cuda/launch.hpp"
#include "cuda/scratch.hpp"
#include "lockstep/runtime/device_runtime.hpp"

/// @file
/// How the blocks of a launch see which of them is the last, which then goes on with what all have
/// left: a launch less.

namespace lockstep::cuda_kernels {

/// `stream_counters` counters for a launch, which are 0 when it begins and when it ends. Lives for
/// one call.
class Arrivals {
 public:
  explicit Arrivals(StreamRef stream) {
    DeviceRuntime& runtime = device_runtime(DeviceType::cuda);
    counters_ = runtime.counters(stream);
    if (counters_) return;
    constexpr std::size_t bytes = stream_counters * sizeof(std::uint32_t);
    own_.emplace(bytes, stream);
    counters_ = static_cast<std::uint32_t*>(own_->data());
    runtime.fill_bytes(counters_, 0, bytes, stream);
  }

  std::uint32_t* data() const { return counters_; }

 private:
  std::uint32_t* counters_ = nullptr;
  std::optional<Scratch> own_;
};

/// True for all threads of the last of `blocks` blocks to come here, which sees what they wrote.
__device__ inline bool comes_last(std::uint32_t& arrivals, unsigned blocks) {
  bool is_last = false;
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    __threadfence();
    is_last = atomicAdd(&arrivals, 1u) + 1 == blocks;
    if (is_last) arrivals = 0;
  }
  if (!__syncthreads_or(is_last)) return false;
  __threadfence();
  return true;
}

}  // namespace lockstep::cuda_kernels
