#pragma once

#include <functional>
#include <vector>

#include "lockstep/comm/communicator.hpp"

/// @file
/// Ranks as threads of one process: for tests, sanitizers and debuggers.

namespace lockstep::comm {

/// Makes a group whose ranks live in this process; element r is to be used by one thread that plays
/// rank r. @param device where buffers must live; ranks may share a GPU: their data go through the
/// host. @throws InvalidArgument below one rank.
std::vector<CommunicatorPtr> make_thread_group(int ranks, const CommunicatorOptions& options = {},
                                               Device device = cpu);

/// Runs `body` once per rank, each on its own thread, and waits for all. A rank that throws aborts
/// the group, so that the others' collectives fail with PeerFailure. @param device as above.
/// @throws the first rank's exception, or a Mismatch if models were trained to different ends.
void run_ranks(int ranks, const std::function<void(Communicator&)>& body,
               const CommunicatorOptions& options = {}, Device device = cpu);

}  // namespace lockstep::comm
