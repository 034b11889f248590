#pragma once

#include <chrono>
#include <functional>

#include "lockstep/comm/communicator.hpp"

/// @file
/// A job of several ranks within one process: threads, with a simulated device each.

namespace planted {

/// Runs `body` once a rank, each on its own thread, over lockstep's NCCL communicator. Waits for
/// all. @throws the first rank's exception, if any threw.
void run_ranks(int ranks, const std::function<void(lockstep::CommunicatorPtr)>& body,
               const lockstep::comm::CommunicatorOptions& options = {
                   .timeout = std::chrono::seconds(20)});

/// The same for ranks that cannot agree: what they call never ends, and is aborted once the
/// simulated GPU has reported something. Their failures are expected.
void run_disagreeing_ranks(const std::function<void(lockstep::CommunicatorPtr)>& body);

}  // namespace planted
