#pragma once

#include "lockstep/checkpoint/manager.hpp"
#include "lockstep/comm/communicator.hpp"

/// @file
/// What a manager of checkpoints refuses of its options.

namespace lockstep::checkpoint {

/// @throws InvalidArgument for options out of range.
void check(const ManagerOptions& options);

/// Or one rank would save and another not, or other checkpoints would stay than a rank believes.
/// Every rank must call it. @throws InvalidArgument on every rank for options that differ.
void check_same(comm::Communicator& group, const ManagerOptions& options);

}  // namespace lockstep::checkpoint
