#pragma once

#include <span>
#include <vector>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Recorded gradients of one op.

namespace lockstep::autograd {

/// The gradients of the sum of outputs with respect to inputs, each taken as independent of the
/// others; they are recorded. Undefined for an input that no output depends on.
/// @param inputs no two the same output of one op
/// @param dys the outputs' gradients
std::vector<Tensor> partial_gradients(std::span<const Tensor> outputs,
                                      std::span<const Tensor> inputs, std::span<const Tensor> dys);

}  // namespace lockstep::autograd
