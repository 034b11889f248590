#pragma once

#include <array>
#include <span>

#include "functional/optimizer.hpp"
#include "lockstep/core/array_view.hpp"
#include "lockstep/runtime/stream.hpp"

/// @file
/// Updates of whole lists of arrays in a few launches. Contracts: backend/reduce.hpp.

namespace lockstep::cuda_kernels {

/// Parameter, gradient, first and second state, largest second state, master copy; absent where
/// unused.
using OptimizerArrays = std::array<ArrayView, 6>;

void sgd(std::span<const OptimizerArrays> list, const SgdCoefficients& coefficients,
         StreamRef stream);
void adam(std::span<const OptimizerArrays> list, const AdamCoefficients& coefficients,
          StreamRef stream);

/// Bytes of scratch memory that `square_sum` needs.
std::size_t square_sum_scratch_bytes(std::span<const ArrayView> arrays);
void square_sum(const ArrayView& out, std::span<const ArrayView> arrays, void* scratch,
                StreamRef stream);
void clip(std::span<const ArrayView> arrays, const ArrayView& square_sum, double limit,
          StreamRef stream);

}  // namespace lockstep::cuda_kernels
