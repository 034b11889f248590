#pragma once

#include <gtest/gtest.h>

#include "parallel/ranks.hpp"
#include "support/contract_ranks.hpp"
#include "support/gpu_ranks.hpp"

/// @file
/// Ranks with a GPU each, on which their tensors live.

namespace lockstep::parallel::testing {

using lockstep::testing::ContractRanks;

inline void run_on_own_gpu(const ContractRanks::Body& body,
                           const comm::CommunicatorOptions& options) {
  device_of_rank = lockstep::testing::gpu_of_rank();
  lockstep::testing::with_world(body, options, device_of_rank);
  device_of_rank = cpu;
}

inline const ContractRanks ranks_over_nccl{
    .name = "Gpus",
    .run = [](const ContractRanks::Body& body,
              const comm::CommunicatorOptions& options) { run_on_own_gpu(body, options); },
    .missing = lockstep::testing::missing_for_gpu_ranks,
    .needs_session_to_abort = true};

/// For a test of its own.
inline void run_over_nccl(const ContractRanks::Body& body) {
  if (const std::string what = ranks_over_nccl.missing(); !what.empty()) GTEST_SKIP() << what;
  ranks_over_nccl.run(body, {});
}

/// Their data go through the host.
inline const ContractRanks ranks_over_the_host{
    .name = "Gpus",
    .run =
        [](const ContractRanks::Body& body, comm::CommunicatorOptions options) {
          options.backend = "mpi";
          run_on_own_gpu(body, options);
        },
    .missing = lockstep::testing::missing_gpus,
    .captures_collectives = false};

}  // namespace lockstep::parallel::testing
