#pragma once

#include "lockstep/tensor/factories.hpp"

/// @file
/// What the programs of one device make their tensors with.

namespace planted {

inline const lockstep::TensorOptions f32{.dtype = lockstep::DType::f32,
                                         .device = lockstep::cuda(0)};

}  // namespace planted
