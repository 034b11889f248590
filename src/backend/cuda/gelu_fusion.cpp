#include "backend/cuda/gelu_fusion.hpp"

#include <cstdlib>
#include <string_view>
#include <unordered_map>

#include "lockstep/core/error.hpp"
#include "runtime/cuda/check.hpp"

namespace lockstep::cuda_kernels {
namespace {

bool choice_of(int device) {
  const char* const variable = std::getenv("LOCKSTEP_FUSED_GELU");
  if (variable && *variable) {
    const std::string_view value = variable;
    LOCKSTEP_CHECK(value == "0" || value == "1", InvalidArgument, "LOCKSTEP_FUSED_GELU is \"",
                   value, "\"; give 0 or 1");
    return value == "1";
  }
  int major = 0;
  LOCKSTEP_CUDA_CALL(cudaDeviceGetAttribute, &major, cudaDevAttrComputeCapabilityMajor, device);
  return major >= 9;
}

}  // namespace

bool fuses_gelu(int device) {
  thread_local std::unordered_map<int, bool> choices;
  if (const auto known = choices.find(device); known != choices.end()) return known->second;
  return choices[device] = choice_of(device);
}

}  // namespace lockstep::cuda_kernels
