#pragma once

#include <string>

/// @file
/// What of the simulated libraries, and which kernels, a program reached: one line for each with
/// the program's name, appended to the file of LOCKSTEP_SIM_COVERAGE at the first time. So nothing
/// is lost however the process ends, and many processes may share the file.

namespace simgpu {

/// Notes a call of a function of the simulated libraries ("cudaMalloc"). Thread-safe.
void cover_call(const char* function);

/// Notes the first call of a function that needs no EntryPoint, as it cannot fail: a static object
/// in its body.
struct Covered {
  explicit Covered(const char* function) { cover_call(function); }
};

/// Notes a problem that the stand-in for cuDNN was asked for, as text without blanks. Thread-safe.
void cover_plan(const std::string& problem);

/// Notes a launch of a kernel, by its mangled names; only its first one costs time. Thread-safe.
void cover_kernel(const void* kernel);

}  // namespace simgpu
