#pragma once

#include <span>
#include <vector>

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Gradient clipping.

namespace lockstep::optim {

/// Scales all gradients by one factor so that their joint Euclidean norm is at most `max_norm`
/// (Pascanu, Mikolov and Bengio 2013). Parameters without a gradient are skipped. Does not wait for
/// the device.
/// @param parameters all on one device.
/// @return the norm before clipping: an f64 scalar on that device.
/// @throws InvalidArgument for a negative limit or parameters on several devices.
Tensor clip_grad_norm_(std::span<const Tensor> parameters, double max_norm);
/// The same for a vector.
inline Tensor clip_grad_norm_(const std::vector<Tensor>& parameters, double max_norm) {
  return clip_grad_norm_(std::span<const Tensor>(parameters), max_norm);
}

}  // namespace lockstep::optim
