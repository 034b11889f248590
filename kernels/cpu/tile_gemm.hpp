#pragma once

#include "arguments/gemm.hpp"

namespace lockstep::cpu_kernels {

/// A product of two matrices of bf16 by tile registers (tile_registers.hpp), its epilogue in the
/// same pass. Each sum runs over the depth in a fixed order: results do not depend on the number of
/// threads.
/// @return false, with nothing done, where the machine has no tiles, or the call is of another kind
/// or too small to be worth it
bool multiply_in_tiles(const kernels::GemmArguments& call);

}  // namespace lockstep::cpu_kernels
