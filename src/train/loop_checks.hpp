#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/stop_request.hpp"
#include "lockstep/train/loop_options.hpp"

/// @file
/// What a training loop refuses, and what its ranks find out together.

namespace lockstep::train {

/// @throws InvalidArgument for options out of range, and on every rank where ranks differ in
/// whether they have checkpoints, or go on from one. Blocks.
void check(comm::Communicator& group, const LoopOptions& options);
/// Before the first step; blocks. @param epoch_steps none where there are no epochs.
/// @throws InvalidArgument on every rank for a run without end, epochs without batches, early
/// stopping without evaluations, and ranks that differ in when they evaluate and end.
void check_run(comm::Communicator& group, const LoopOptions& options, bool evaluates,
               std::optional<std::int64_t> epoch_steps);

/// Whether a save that takes so long fits into the time that a stop has left on the rank with the
/// least of it; else rank 0 warns. Blocks. @param folder of the checkpoints, of which it names the
/// newest.
bool has_time(comm::Communicator& group, const StopRequest& stop,
              std::chrono::duration<double> save_time, const std::filesystem::path& folder);

}  // namespace lockstep::train
