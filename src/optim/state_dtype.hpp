#pragma once

#include "lockstep/core/dtype.hpp"

/// @file
/// What optimizers compute in.

namespace lockstep::optim {

/// The dtype of an optimizer's state: in bf16 a second moment with beta2 = 0.999 would stand still.
constexpr DType state_dtype(DType parameter) {
  return parameter == DType::f64 ? DType::f64 : DType::f32;
}

}  // namespace lockstep::optim
