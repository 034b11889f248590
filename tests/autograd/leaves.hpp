#pragma once

#include <initializer_list>

#include "lockstep/tensor/factories.hpp"

/// @file
/// What backwards of a few numbers start from and end in.

namespace lockstep::testing {

inline constexpr TensorOptions f64{.dtype = DType::f64};

inline Tensor leaf(std::initializer_list<double> values) {
  return tensor<double>(values).set_requires_grad();
}

}  // namespace lockstep::testing
