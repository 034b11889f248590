#pragma once

#include <algorithm>
#include <string>

#include "lockstep/comm/info.hpp"
#include "lockstep/runtime/info.hpp"
#include "support/mpi_world.hpp"

/// @file
/// Jobs in which each rank has a GPU of its own.

namespace lockstep::testing {

/// Why the ranks of this job cannot have a GPU each; empty if they can.
inline std::string missing_gpus() {
  const int gpus = cuda_device_count(), ranks = test_bootstrap().local_size();
  if (gpus == 0) return "no CUDA device on this machine";
  if (gpus < ranks)
    return std::to_string(ranks) + " ranks but " + std::to_string(gpus) + " CUDA devices";
  return "";
}

/// The same, if they are to talk over NCCL.
inline std::string missing_for_gpu_ranks() {
  if (const std::string missing = missing_gpus(); !missing.empty()) return missing;
  const auto libraries = comm::components();
  const bool has_nccl = std::ranges::any_of(
      libraries, [](const Component& library) { return library.name == "NCCL"; });
  return has_nccl ? "" : "no NCCL in this build";
}

/// The calling rank's GPU.
inline Device gpu_of_rank() { return cuda(test_bootstrap().local_rank()); }

}  // namespace lockstep::testing
