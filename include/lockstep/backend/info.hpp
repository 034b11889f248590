#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/component.hpp"

/// @file
/// What computes ops in this build, for bug reports.

namespace lockstep::backend {

/// Names of the CPU backends of this build, fastest first.
std::vector<std::string_view> cpu_backends();
/// Chooses the CPU backend for the whole process: "onednn" or "cpu".
/// The environment variable LOCKSTEP_CPU_BACKEND sets the initial choice.
/// @throws InvalidArgument naming the ones available.
void use_cpu_backend(std::string_view name);

/// The libraries behind the ops: oneDNN, cuBLASLt, cuDNN, as far as this build has them.
std::vector<Component> components();

/// Instruction sets of the CPU kernels.
struct CpuInstructions {
  std::vector<std::string> compiled;  ///< levels of this build, best first
  std::string used;                   ///< the one in use; the variable LOCKSTEP_CPU_ISA chooses
  std::vector<std::string> machine;   ///< extensions that this machine has, of those that matter
};
/// See CpuInstructions. @throws InvalidArgument if LOCKSTEP_CPU_ISA names none that runs here.
CpuInstructions cpu_instructions();

/// How the CPU backend in use computes with a 16-bit floating dtype.
struct HalfPrecision {
  std::string dtype;
  std::string how;
};
/// Both 16-bit floating dtypes.
std::vector<HalfPrecision> cpu_half_precision();

}  // namespace lockstep::backend
