#pragma once

#include <functional>
#include <string>

#include "lockstep/checkpoint/state.hpp"

/// @file
/// States of which each rank has its own.

namespace lockstep::checkpoint {

/// What ranks go on with where others were saved: on another number of ranks, or alike now.
enum class OfOthers : unsigned char {
  joined,  ///< the mean of floating tensors, of others the largest, for all
  in_turn  ///< rank r with that of r % saved ranks
};

/// The same state where each rank has its own, which comes back to that rank: each tensor is saved
/// as the ranks' in a row, with a first dimension of their number, as "each_rank/NAME". Where
/// others were saved, rank 0 warns. Tensors that were saved as alike come back so.
/// @param state gives tensors of the same names and shapes on all ranks.
/// @param differs whether each rank has its own of a tensor, when it is saved or loaded.
TensorState of_each_rank(TensorState state, int rank, int size,
                         std::function<bool(const std::string& name)> differs,
                         OfOthers others = OfOthers::joined);

}  // namespace lockstep::checkpoint
