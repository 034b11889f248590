#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "cuda_runtime_api.h"
#include "simgpu/variables.hpp"

/// @file
/// The program's `__device__` and `__constant__` variables: memory of each device that uses them.
/// Thread-safe.

namespace simgpu {

/// A variable in the memory of a device.
struct PlacedVariable {
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  VariableKind kind = VariableKind::device;
};

/// All that the program has, in the memory of a device, where they come into being if they are not
/// there yet: with the values of the source, or zeros. Those of constants without a value in the
/// source count as not written.
std::vector<PlacedVariable> variables_on(int device);

/// The bytes of the variable that an address means: the host's copy, or its memory on any device.
/// Nothing if it is no variable.
std::optional<std::size_t> bytes_of_variable(const void* symbol);
/// Its memory on a device; null if it is no variable.
std::byte* find_variable(const void* symbol, int device);

/// The variables' names mean those of a device from now on: for the executor, before a kernel.
void refer_to_variables_of(int device);

/// The device's memory is gone: variables come into being anew.
void forget_variables(int device);

}  // namespace simgpu
