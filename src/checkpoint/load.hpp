#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/reading.hpp"
#include "checkpoint/registry.hpp"
#include "checkpoint/state_file.hpp"
#include "lockstep/comm/communicator.hpp"

/// @file
/// How ranks read a checkpoint together.

namespace lockstep::checkpoint {

/// For what could not be read to be there: an older checkpoint would cost what was trained since.
/// Tests in which many reads fail wait less.
inline std::chrono::milliseconds before_another_try{500};

/// What was read of a checkpoint for a registry's states.
struct Loaded {
  StateFile values;
  std::vector<NamedTensors> tensors;  ///< of each TensorState, on the CPU
  bool is_all = false;                ///< no file was left out: the checkpoint is whole
  /// For `fill_in_place`: of tensors that training has, this rank's own part is filled.
  std::vector<Reading> readings;
  std::vector<FormerValues> former;  ///< of that part; comes back if this dies before
};

/// Takes the states out of a registry that a checkpoint lacks. Every rank must call it.
/// @return their names. @throws CorruptData on every rank; what the group throws.
std::vector<std::string> leave_out_absent(comm::Communicator& group,
                                          const std::filesystem::path& checkpoint,
                                          Registry& registry);

/// Reads and checks all that a registry's states want of a checkpoint; changes nothing that does
/// not change back if it throws, or what it returns dies. Every rank reads its own part, and gets
/// from the others what it wants of theirs. Every rank must call it.
/// @param partial no tensor that training has stays in its place: it may be one that does not fit.
/// @param staging gets what this rank's part of those that do has now.
/// @throws CorruptData naming file and tensor, also for a file that cannot be read, which is tried
/// twice, InvalidArgument for a state that is missing there, in the words of the first rank that
/// has one, on all of them; what the group throws.
Loaded read_checkpoint(comm::Communicator& group, const std::filesystem::path& checkpoint,
                       const Registry& registry, bool partial, Staging& staging);

}  // namespace lockstep::checkpoint
