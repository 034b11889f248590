#pragma once

#include "arguments/gemm.hpp"
#include "lockstep/core/function_ref.hpp"

/// @file
/// Products of 16-bit floats on processors that multiply none.

namespace lockstep::backend {

/// True for operands that oneDNN multiplies no faster than f32 here: f16, and bf16 where the
/// processor has no products of it, where its code is five times slower.
bool is_multiplied_in_f32(DType dtype);

/// `count` neighbours of an array along a dimension, from `first` on.
ArrayView part(ArrayView view, int dim, std::int64_t first, std::int64_t count);

/// A product of such operands in f32: block by block they are widened, multiplied and rounded, so
/// that no block leaves the caches in between. Sums are in f32 over the whole depth.
/// @param call without an addend, GELU or a gradient of a bias; with rows of `out` in a row.
/// @param multiply one of f32.
void multiply_in_f32(const kernels::GemmArguments& call,
                     FunctionRef<void(const kernels::GemmArguments&)> multiply);

}  // namespace lockstep::backend
