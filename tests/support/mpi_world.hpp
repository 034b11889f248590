#pragma once

#include <functional>
#include <string>

#include "lockstep/comm/bootstrap.hpp"
#include "support/contract_ranks.hpp"

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

/// The processes of this job, for contract suites; over a backend, or over the one that is chosen.
inline ContractRanks processes(std::string backend = {}) {
  return {.name = "Processes",
          .run = [=](const ContractRanks::Body& body, comm::CommunicatorOptions options) {
            options.backend = backend;
            with_world(body, options);
          }};
}

}  // namespace lockstep::testing
