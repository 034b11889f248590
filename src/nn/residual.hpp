#pragma once

#include "lockstep/autograd/ops/pointwise.hpp"
#include "lockstep/nn/linear.hpp"

/// @file
/// The end of a residual branch.

namespace lockstep::nn {

/// What a layer gives, and a residual beside it: of the layer's product, unless its hooks are to
/// see what it gives alone. An undefined addend adds nothing.
inline Tensor plus(const Tensor& addend, const Child<Linear>& layer, const Tensor& x) {
  if (!addend.defined()) return layer(x);
  return layer->has_call_hooks() ? addend + layer(x) : layer(x, addend);
}

}  // namespace lockstep::nn
