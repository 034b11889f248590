#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "kernels/modules.hpp"

/// @file
/// Names of __shared__ variables.

namespace simgpu {

/// A variable of the program.
struct Variable {
  std::string name;    ///< demangled: "softmax_kernel(float*)::row"
  std::size_t offset;  ///< of the address in question
  std::size_t bytes;
};

/// The __shared__ variable at an address, from the symbols in the module's file; nothing if it has
/// none. Reads the file: for reports.
std::optional<Variable> shared_variable_at(const Module& module, std::uintptr_t address);

}  // namespace simgpu
