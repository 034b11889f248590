#pragma once

#include <string>
#include <vector>

/// @file
/// Names for addresses of code.

namespace simgpu {

/// A function that an address belongs to; the file is empty where nothing is known of it.
struct Symbol {
  std::string function;  ///< demangled, without its parameters' types
  std::string file;
  int line = 0;
};

/// The function at an address, preceded by those that the compiler put into it, innermost first.
/// Empty if nothing is known. Slow: for reports.
std::vector<Symbol> symbols_of(const void* address);

/// The readable form of a mangled name, without the types of its parameters.
std::string readable(const char* mangled);

}  // namespace simgpu
