#pragma once

#include <cstdint>

#include "lockstep/comm/communicator.hpp"

/// @file
/// Numbers by which collectives say what they belong to.

namespace lockstep::parallel {

/// A number that rank 0 has given nobody else, the same on every rank: CollectiveId::owner. Blocks.
std::uint64_t agree_on_number(comm::Communicator& group);

}  // namespace lockstep::parallel
