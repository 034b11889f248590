#pragma once

#include "lockstep/core/array_view.hpp"
#include "lockstep/runtime/stream.hpp"

/// @file
/// Layer norm and RMS norm over rows: RMS norm is layer norm without mean and bias. Contracts:
/// backend/rows.hpp.

namespace lockstep::cuda_kernels {

struct NormArrays {
  ArrayView y, mean, rstd, x, weight, bias;
};
/// Layer norm where `mean` is given, else RMS norm.
void norm(const NormArrays& arrays, double eps, StreamRef stream);

struct NormGradients {
  ArrayView dx, dweight, dbias, dy, x, weight, mean, rstd;
  bool accumulate = false;
};
/// Bytes of scratch memory that `norm_backward` needs.
std::size_t norm_scratch_bytes(const NormGradients& arrays);
void norm_backward(const NormGradients& arrays, void* scratch, StreamRef stream);

}  // namespace lockstep::cuda_kernels
