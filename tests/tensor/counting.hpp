#pragma once

#include "lockstep/autograd/ops.hpp"
#include "lockstep/tensor/factories.hpp"

namespace lockstep::testing {

/// 0, 1, 2, ... as f64.
inline Tensor counting(const Shape& shape) {
  return arange(numel(shape), {.dtype = DType::f64}).reshape(shape);
}

}  // namespace lockstep::testing
