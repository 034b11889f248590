#pragma once

#include "cpu/loops/fill.hpp"

/// @file
/// Random words, many at once.

namespace lockstep::cpu_kernels::LOCKSTEP_ISA {

/// `count` random words from `first` on; both are multiples of 4.
template <int count>
void random_words(std::uint32_t* words, const PhiloxState& state, std::int64_t first) {
  constexpr int blocks = count / 4;
  std::uint32_t part[4][blocks];
  for (int i = 0; i < blocks; ++i) {
    const PhiloxBlock block = state.block(static_cast<std::uint64_t>(first / 4 + i));
    for (int k = 0; k < 4; ++k) part[k][i] = block.word[k];
  }
  for (int i = 0; i < blocks; ++i)
    for (int k = 0; k < 4; ++k) words[4 * i + k] = part[k][i];
}

}  // namespace lockstep::cpu_kernels::LOCKSTEP_ISA
