#pragma once

#include <functional>

#include "lockstep/comm/bootstrap.hpp"

/// @file
/// What distributed tests see of their job. The main program is mpi_main.cpp.

namespace lockstep::testing {

/// The job of this test process.
comm::Bootstrap& test_bootstrap();

/// Runs `body` with a fresh communicator over all ranks, for buffers on `device`; the watchdog
/// knows of it. Ends with a barrier, so that one test's trouble does not reach into the next. Every
/// rank must call it.
void with_world(const std::function<void(Communicator&)>& body,
                const comm::CommunicatorOptions& options = {}, Device device = cpu);

}  // namespace lockstep::testing
