#pragma once

#include <functional>
#include <vector>

#include "lockstep/comm/communicator.hpp"

/// @file
/// Ranks as threads of one process: for tests, sanitizers and debuggers.

namespace lockstep::comm {

/// Makes a group whose ranks live in this process; element r is to be used by one thread that plays
/// rank r. @throws InvalidArgument below one rank.
std::vector<CommunicatorPtr> make_thread_group(int ranks, const CommunicatorOptions& options = {});

/// Runs `body` once per rank, each on its own thread, and waits for all. A rank that throws aborts
/// the group, so that the others' collectives fail with PeerFailure.
/// @throws the first rank's exception, or a Mismatch if models were trained to different ends.
void run_ranks(int ranks, const std::function<void(Communicator&)>& body,
               const CommunicatorOptions& options = {});

}  // namespace lockstep::comm
