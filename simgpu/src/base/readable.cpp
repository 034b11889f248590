#include <cstdlib>

#include <cxxabi.h>

#include "base/symbols.hpp"

namespace simgpu {
namespace {

// Position of the parenthesis that opens the parameters: the last at depth zero.
std::size_t parameters_of(const std::string& name) {
  int depth = 0;
  std::size_t found = std::string::npos;
  for (std::size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (c == '(' && depth == 0 && name.compare(i, 21, "(anonymous namespace)") != 0) found = i;
    if (c == '<' || c == '(') ++depth;
    if (c == '>' || c == ')') --depth;
  }
  return found;
}

}  // namespace

std::string readable(const char* mangled) {
  int status = 0;
  char* const text = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
  if (text == nullptr) return mangled;
  std::string name = text;
  std::free(text);
  const std::size_t parameters = parameters_of(name);
  if (parameters != std::string::npos && parameters > 0) name.resize(parameters);
  if (name.rfind("void ", 0) == 0) name.erase(0, 5);
  for (const std::string part : {"(anonymous namespace)::", "lockstep::cuda_kernels::"})
    for (auto at = name.find(part); at != std::string::npos; at = name.find(part))
      name.erase(at, part.size());
  return name;
}

}  // namespace simgpu
