#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/throttle.hpp"
#include "lockstep/comm/communicator.hpp"

/// @file
/// Whether what was written can be read.

namespace lockstep::checkpoint {

/// Reads a checkpoint and compares it with its manifest, each rank an equal part of its blocks.
/// Every rank must call it.
/// @param manifest its text. @param throttle how much of the processor that may take.
/// @return what is wrong, the same on every rank; empty if it is whole.
/// @throws what the group throws.
std::string read_back(comm::Communicator& group, const std::filesystem::path& checkpoint,
                      const std::string& manifest, Throttle& throttle);

}  // namespace lockstep::checkpoint
