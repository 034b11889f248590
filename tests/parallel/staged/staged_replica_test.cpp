#include "parallel/contracts.hpp"
#include "parallel/ranks.hpp"
#include "support/gpu_ranks.hpp"

namespace lockstep::parallel::testing {
namespace {

using lockstep::testing::ContractRanks, lockstep::testing::name_of_ranks;

// A GPU each.
const ContractRanks ranks{
    .name = "Gpus",
    .run =
        [](const ContractRanks::Body& body, const comm::CommunicatorOptions&) {
          device_of_rank = lockstep::testing::gpu_of_rank();
          lockstep::testing::with_world(body, {.backend = "mpi"}, device_of_rank);
          device_of_rank = cpu;
        },
    .missing = lockstep::testing::missing_gpus,
    .captures_collectives = false};
const auto gpus = ::testing::Values(ranks);
INSTANTIATE_TEST_SUITE_P(Staged, ReplicaContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Staged, UserHookContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Staged, ZeroContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Staged, GatherContract, gpus, name_of_ranks);

}  // namespace
}  // namespace lockstep::parallel::testing
