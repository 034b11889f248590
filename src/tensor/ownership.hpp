#pragma once

#include "lockstep/tensor/tensor.hpp"

/// @file
/// Who else sees what is written to a tensor.

namespace lockstep {

/// Whether nobody has the tensor, or its memory, but who asks.
inline bool is_sole_owner(const Tensor& x) {
  return x.use_count() == 1 && x.impl().storage->use_count() == 1;
}

/// Whether two tensors of the same dtype are the same elements in the same places.
inline bool is_same_memory(const Tensor& a, const Tensor& b) {
  return a.defined() && b.defined() && a.impl().storage == b.impl().storage &&
         a.data_ptr() == b.data_ptr() && a.numel() == b.numel() && a.is_contiguous() &&
         b.is_contiguous();
}

}  // namespace lockstep
