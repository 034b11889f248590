#pragma once

#include <string_view>
#include <vector>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// The equation of an einsum, resolved against its operands.

namespace lockstep::autograd {

/// What names a dimension: an index into A-Z, a-z, or after those a dimension of the ellipsis.
using Label = int;
/// The labels of a tensor's dimensions, in order.
using Labels = std::vector<Label>;

/// Labels of all operands and of the result, one for each dimension.
struct EinsumEquation {
  std::vector<Labels> operands;
  Labels result;
};

/// @throws InvalidArgument if the equation is malformed or does not fit the ranks of the operands.
EinsumEquation parse_einsum(std::string_view equation, const std::vector<Tensor>& operands);

}  // namespace lockstep::autograd
