#include <cuda_runtime_api.h>

#include "lockstep/runtime/info.hpp"

namespace lockstep {
namespace {

// 13000 is 13.0.
std::string spell(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

std::vector<Component> runtime_components() {
  int runtime = 0, driver = 0;
  const bool has_runtime = cudaRuntimeGetVersion(&runtime) == cudaSuccess;
  const bool has_driver = cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0;
  return {{"CUDA runtime", has_runtime ? spell(runtime) : "unknown"},
          {"CUDA driver", has_driver ? spell(driver) : "none"}};
}

}  // namespace lockstep
