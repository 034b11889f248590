#pragma once

#include "vector_types.h"

/// @file
/// The memory behind threadIdx, blockIdx, blockDim and gridDim, which kernels see as constants.

namespace simgpu {

extern uint3 thread_index __asm__("threadIdx");
extern uint3 block_index __asm__("blockIdx");
extern uint3 block_extent __asm__("blockDim");
extern uint3 grid_extent __asm__("gridDim");

}  // namespace simgpu
