#include "backend/cuda/epilogue_choice.hpp"

#include <unordered_map>

#include "core/environment_switch.hpp"
#include "lockstep/core/thread_kept.hpp"
#include "runtime/cuda/check.hpp"

namespace lockstep::cuda_kernels {
namespace {

using Choices = std::unordered_map<int, bool>;

bool choice_of(const char* name, int device) {
  if (const auto given = environment_switch(name)) return *given;
  int major = 0;
  LOCKSTEP_CUDA_CALL(cudaDeviceGetAttribute, &major, cudaDevAttrComputeCapabilityMajor, device);
  return major >= 9;
}

bool known_choice(detail::KeptByThread<Choices>& kept, const char* name, int device) {
  Choices& choices = kept.get();
  if (const auto known = choices.find(device); known != choices.end()) return known->second;
  return choices[device] = choice_of(name, device);
}

}  // namespace

bool fuses_gelu(int device) {
  thread_local detail::KeptByThread<Choices> choices;
  return known_choice(choices, "LOCKSTEP_FUSED_GELU", device);
}

bool fuses_bias_gradient(int device) {
  thread_local detail::KeptByThread<Choices> choices;
  return known_choice(choices, "LOCKSTEP_FUSED_BIAS_GRADIENT", device);
}

bool norms_sum_biases(int) {
  thread_local const bool choice =
      !environment_switch("LOCKSTEP_FUSED_BIAS_GRADIENT").value_or(false);
  return choice;
}

}  // namespace lockstep::cuda_kernels
