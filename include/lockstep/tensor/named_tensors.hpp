#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// How states travel between modules, optimizers and files.

namespace lockstep {

/// Tensors with their names, in a fixed order.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

}  // namespace lockstep
