#pragma once

#include <cstddef>
#include <cstdint>

/// @file
/// The parts of the program in memory.

namespace simgpu {

/// The program or shared library that a kernel belongs to.
struct Module {
  std::uintptr_t begin = 0, end = 0;  ///< code and data
  /// The calling thread's own variables of the module, which is where __shared__ ones lie.
  std::uintptr_t own_begin = 0;
  std::size_t own_bytes = 0;
  const char* path = "";  ///< of its file; valid while it is loaded

  bool holds(std::uintptr_t address) const { return address >= begin && address < end; }
};

/// The module that holds an address, as the calling thread sees it.
Module module_of(const void* address);

}  // namespace simgpu
