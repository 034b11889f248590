#include "backend/cuda/epilogue_choice.hpp"

#include <cstdlib>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "lockstep/core/error.hpp"
#include "runtime/cuda/check.hpp"

namespace lockstep::cuda_kernels {
namespace {

using Choices = std::unordered_map<int, bool>;

/// What a variable says; nothing where it is not set.
std::optional<bool> choice_of_user(const char* name) {
  const char* const variable = std::getenv(name);
  if (!variable || !*variable) return std::nullopt;
  const std::string_view value = variable;
  LOCKSTEP_CHECK(value == "0" || value == "1", InvalidArgument, name, " is \"", value,
                 "\"; give 0 or 1");
  return value == "1";
}

bool choice_of(const char* name, int device) {
  if (const auto given = choice_of_user(name)) return *given;
  int major = 0;
  LOCKSTEP_CUDA_CALL(cudaDeviceGetAttribute, &major, cudaDevAttrComputeCapabilityMajor, device);
  return major >= 9;
}

bool known_choice(Choices& choices, const char* name, int device) {
  if (const auto known = choices.find(device); known != choices.end()) return known->second;
  return choices[device] = choice_of(name, device);
}

}  // namespace

bool fuses_gelu(int device) {
  thread_local Choices choices;
  return known_choice(choices, "LOCKSTEP_FUSED_GELU", device);
}

bool fuses_bias_gradient(int device) {
  thread_local Choices choices;
  return known_choice(choices, "LOCKSTEP_FUSED_BIAS_GRADIENT", device);
}

bool norms_sum_biases(int) {
  thread_local const bool choice = !choice_of_user("LOCKSTEP_FUSED_BIAS_GRADIENT").value_or(false);
  return choice;
}

}  // namespace lockstep::cuda_kernels
