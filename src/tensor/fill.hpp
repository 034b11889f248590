#pragma once

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Writing one number to all elements.

namespace lockstep {

/// Sets all elements, on the current stream. Not an op: nothing is checked or noted.
/// @param value that the dtype holds (`check_holds`).
void fill_view(const Tensor& tensor, const Scalar& value);

}  // namespace lockstep
