#pragma once

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Keeps what a backward reads apart from where it writes.

namespace lockstep::autograd {

/// A copy in fresh memory, in the same order; not recorded.
Tensor copied_from_gradient(const Tensor& tensor);

/// The tensor, or a copy if it lies in the memory of a leaf's gradient: the backward adds to that,
/// and may have to read the tensor afterwards.
inline Tensor apart_from_gradients(const Tensor& tensor) {
  if (!tensor.defined() || !tensor.impl().storage->holds_gradient()) return tensor;
  return copied_from_gradient(tensor);
}

}  // namespace lockstep::autograd
