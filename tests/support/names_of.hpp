#pragma once

#include <string>
#include <vector>

#include "lockstep/tensor/named_tensors.hpp"

namespace lockstep::testing {

/// The names of tensors, in their order.
inline std::vector<std::string> names_of(const NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

}  // namespace lockstep::testing
