#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lockstep/comm/info.hpp"
#include "lockstep/runtime/info.hpp"
#include "support/mpi_world.hpp"

/// @file
/// Jobs in which each rank has a GPU of its own.

namespace lockstep::testing {

/// Whether ranks may share a GPU: LOCKSTEP_SHARE_GPUS=1, for machines that have one alone. NCCL
/// takes that only of ranks that it believes to be on different hosts (NCCL_HOSTID).
inline bool shares_gpus() {
  const char* value = std::getenv("LOCKSTEP_SHARE_GPUS");
  return value && std::string_view(value) == "1";
}

/// Why the ranks of this job cannot have a GPU each; empty if they can.
inline std::string missing_gpus() {
  const int gpus = cuda_device_count(), ranks = test_bootstrap().local_size();
  if (gpus == 0) return "no CUDA device on this machine";
  if (gpus < ranks && !shares_gpus())
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
inline Device gpu_of_rank() {
  const int rank = test_bootstrap().local_rank();
  return cuda(shares_gpus() ? rank % cuda_device_count() : rank);
}

}  // namespace lockstep::testing
