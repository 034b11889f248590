#pragma once

#include <string>
#include <string_view>

#include "checkpoint/run_folder.hpp"
#include "checkpoint/snapshot.hpp"
#include "lockstep/comm/communicator.hpp"

/// @file
/// How ranks write a checkpoint together.

namespace lockstep::checkpoint {

/// Compares what ranks have of a snapshot: one exchange where all is well. Every rank must call it.
/// @param error why this rank has none.
/// @return what is wrong, the same on every rank.
std::string agree_on_plan(comm::Communicator& group, const Snapshot& snapshot, std::string error,
                          std::string_view label);

/// Writes a snapshot as a checkpoint: it is durable when this returns, or the folder is as before.
/// Every rank must call it.
/// @param folder of rank 0, which alone makes and renames; else null. @param path its path.
/// @param later has the snapshot's copies that were started. @param throttle how much of the
/// processor writing may take.
/// @param error why this rank has no snapshot: then all fail.
/// @return why it failed, the same on every rank; empty if it did not.
/// @throws what the group throws.
std::string write_checkpoint(comm::Communicator& group, RunFolder* folder,
                             const std::filesystem::path& path, const Snapshot& snapshot,
                             LaterCopies& later, Throttle& throttle, std::string error = {});

}  // namespace lockstep::checkpoint
