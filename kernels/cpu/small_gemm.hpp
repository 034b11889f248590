#pragma once

#include "arguments/gemm.hpp"

/// @file
/// Products so small that packing their operands, or preparing a primitive, costs as much as they
/// do.

namespace lockstep::cpu_kernels {

/// Computes a small f32 product, on one thread: operands are multiplied as they lie in memory, but
/// for a b whose columns are no neighbours. Each element's sum runs over the depth in its order.
/// @param call one that fits together. @returns false, with nothing done, where another way is
/// faster, or for another dtype, an epilogue of GELU, or an output whose columns are no neighbours.
bool multiply_small(const kernels::GemmArguments& call);

}  // namespace lockstep::cpu_kernels
