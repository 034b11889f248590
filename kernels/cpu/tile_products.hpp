#pragma once

#include "cpu/bf16_attention.hpp"
#include "cpu/tile_registers.hpp"

namespace lockstep::cpu_kernels {

#if defined(__x86_64__)
/// A product of Bf16AttentionLoops by tile registers; where has_tile_registers().
void multiply_in_tiles(const PairProduct& product);
#endif

}  // namespace lockstep::cpu_kernels
