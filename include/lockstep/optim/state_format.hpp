#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

/// @file
/// In how many bits optimizers remember.

namespace lockstep::optim {

/// How an optimizer keeps what it remembers of each element. Steps are computed in f32 whatever the
/// format. bf16 and blockwise_8bit round stochastically, by a sequence of their own that no seed
/// changes: all ranks, and a run that is resumed, draw the same. Parameters in f64 have `full`
/// only.
enum class StateFormat : std::uint8_t {
  full,  ///< f32, and f64 for f64 parameters
  bf16,  ///< half of it
  /// A quarter: 8 bits an element and an f32 scale for each 256 (Dettmers et al. 2022). Parameters
  /// of fewer than 4,096 elements keep f32.
  blockwise_8bit,
};

/// "full", "bf16" or "blockwise_8bit".
constexpr std::string_view name_of(StateFormat format) {
  constexpr std::string_view names[] = {"full", "bf16", "blockwise_8bit"};
  return names[static_cast<std::size_t>(format)];
}

}  // namespace lockstep::optim
