#pragma once

#include <string>
#include <vector>

/// @file
/// Names of functions by their address, read from the files that the program was loaded from.

namespace simgpu {

/// The mangled names of the function that starts at an address, those of static functions too:
/// several where the linker or the compiler made one of equal ones. Empty in a stripped program.
/// Takes well under a millisecond, and needs no debug information. Thread-safe.
std::vector<std::string> mangled_names(const void* function);

}  // namespace simgpu
