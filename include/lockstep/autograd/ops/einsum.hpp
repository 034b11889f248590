#pragma once

#include <string_view>
#include <vector>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Einstein summation.

namespace lockstep {

/// Sums of products along named dimensions, as PyTorch's and NumPy's einsum: "bik,bkj->bij" is a
/// batched product, "ii->i" a diagonal, "ij->" the sum of all. A letter names a dimension of each
/// operand; operands are separated by commas, blanks ignored. Dimensions whose letters are not
/// behind the arrow are summed over; without an arrow, what occurs once is kept, in alphabetical
/// order. "..." stands for any dimensions that are broadcast, also with extents of 1. Operands are
/// contracted from left to right, each pair as a batched matrix product (or an elementwise one
/// where nothing is summed).
/// @param equation for as many operands as are given.
/// @throws InvalidArgument for an equation that is malformed or does not fit the shapes.
Tensor einsum(std::string_view equation, const std::vector<Tensor>& operands);

}  // namespace lockstep
