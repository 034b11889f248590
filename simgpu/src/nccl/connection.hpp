#pragma once

#include <span>
#include <vector>

#include "nccl/call.hpp"

/// @file
/// How two ranks connect before their first messages, as NCCL from 2.18 to 2.30 does it
/// (ncclTransportP2pSetup): on the host, each direction once, when a group of calls needs it.

namespace simgpu::nccl {

class Communicator;

enum Direction : unsigned { sending = 1, receiving = 2 };
/// Sets of them, by peer.
using Directions = std::vector<unsigned>;

/// Those in which calls exchange messages. Some collectives are made of messages.
Directions directions_of(std::span<const Arguments> calls, int rank, int size);

/// Connects what a group needs with all of its peers, one after the other, and waits for each to
/// have done the same; then for all of them to have come so far. A peer half the group away gets
/// one message for both directions.
/// @param has_met_half true if there is a connection with that peer already.
/// @return false if it ended because the communicator was aborted or has failed.
/// @throws Failure if that peer needs more directions in its group
bool connect(Communicator& communicator, const Directions& needed, bool has_met_half);

}  // namespace simgpu::nccl
