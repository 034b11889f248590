#pragma once

#include <string_view>

#include "lockstep/checkpoint/state.hpp"

namespace lockstep::nn {
class ReplicatedModule;
}

/// @file
/// Gradients that are added up when a step is saved between its micro-batches.

namespace lockstep::checkpoint {

/// Whether a tensor of a state is of these gradients.
bool is_accumulation(std::string_view name);

/// Of a checkpoint of a replica, what a module alone takes.
NamedTensors without_accumulation(NamedTensors tensors);

/// A replica's state, and beside it what backwards under no_sync() have added up on this rank, if
/// anything, where any rank has some: to be kept for each rank (`of_each_rank`). Loading it leaves
/// the replica between the same micro-batches; a state without it, between two steps.
TensorState with_accumulation(TensorState state, nn::ReplicatedModule& replica);

}  // namespace lockstep::checkpoint
