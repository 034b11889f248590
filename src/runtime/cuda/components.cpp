#include <cuda_runtime_api.h>

#include "lockstep/runtime/info.hpp"
#include "runtime/cuda/version_text.hpp"

namespace lockstep {
std::vector<Component> runtime_components() {
  int runtime = 0, driver = 0;
  const bool has_runtime = cudaRuntimeGetVersion(&runtime) == cudaSuccess;
  const bool has_driver = cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0;
  return {{"CUDA runtime", has_runtime ? version_text(runtime) : "unknown"},
          {"CUDA driver", has_driver ? version_text(driver) : "none"}};
}

}  // namespace lockstep
