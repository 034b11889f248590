#pragma once

#include "lockstep/tensor/factories.hpp"
#include "lockstep/tensor/tensor.hpp"

/// @file
/// Tensors [N, H, T, D] of several heads, as their kernels take and give them.

namespace lockstep::autograd {

/// The tensor itself if its last dimension is dense, else a packed copy.
inline Tensor dense_last(const Tensor& x) {
  return x.strides().back() == 1 || x.size(-1) == 1 ? x : x.contiguous();
}

/// [N, H, T, D] over memory ordered N, T, H, D: joining the heads afterwards is then a view.
inline Tensor empty_heads(const Shape& shape, TensorOptions options) {
  const Tensor memory = empty({shape[0], shape[2], shape[1], shape[3]}, options);
  return memory.permute({0, 2, 1, 3});
}

}  // namespace lockstep::autograd
