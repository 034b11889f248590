#pragma once

#include <cstddef>
#include <functional>
#include <utility>

#include "cuda_runtime_api.h"
#include "simgpu/kernel_language.hpp"

/// @file
/// Stands in for the toolkit's header of the same name when .cu files are compiled by a plain C++
/// compiler: the declarations that lockstep's kernels use, with the signatures of the original.

namespace simgpu {

/// Queues a launch; `thread` runs one CUDA thread.
cudaError_t enqueue_launch(const cudaLaunchConfig_t& config, std::function<void()> thread);

}  // namespace simgpu

template <class... Expected, class... Actual>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Expected...),
                               Actual&&... arguments) {
  // Arguments are converted and copied at launch, as the real launch does.
  const auto enqueue = [config, kernel](Expected... copies) {
    return ::simgpu::enqueue_launch(*config, [=] { kernel(copies...); });
  };
  return enqueue(std::forward<Actual>(arguments)...);
}
