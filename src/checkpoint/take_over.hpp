#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "checkpoint/load.hpp"
#include "lockstep/checkpoint/state.hpp"

/// @file
/// How states take over what was loaded for them.

namespace lockstep::checkpoint {

/// Hands each state what a checkpoint has of it: tensors, state by state, those that training has
/// last, then values. Every rank must call it.
/// @param loaded its tensors are let go, those of each state once that has taken them over.
/// @param present the states that the checkpoint has.
/// @param partial what does not fit is left, and told as a warning, in the words of rank 0.
/// @param absent names of states that the checkpoint lacks; told with these.
/// @throws InvalidArgument on every rank for what does not fit, with `partial` if ranks differ in
/// that; what states and the group throw.
LoadReport take_over(comm::Communicator& group, Loaded& loaded,
                     const std::filesystem::path& checkpoint, const Registry& present, bool partial,
                     std::span<const std::string> absent);

}  // namespace lockstep::checkpoint
