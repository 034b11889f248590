#include "parallel/gather_contract.hpp"
#include "parallel/replica_contract.hpp"
#include "parallel/user_hook_contract.hpp"
#include "parallel/zero_contract.hpp"
#include "support/gpu_ranks.hpp"

namespace lockstep::parallel::testing {
namespace {

/// Ranks with a GPU each, whose data go through the host.
struct StagedRanks {
  static constexpr bool runs_eagerly = true;

  static void run(const std::function<void(Communicator&)>& body) {
    const std::string missing = lockstep::testing::missing_gpus();
    if (!missing.empty()) GTEST_SKIP() << missing;
    device_of_rank = lockstep::testing::gpu_of_rank();
    lockstep::testing::with_world(body, {.backend = "mpi"}, device_of_rank);
    device_of_rank = cpu;
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Staged, ReplicaContract, StagedRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Staged, UserHookContract, StagedRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Staged, ZeroContract, StagedRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Staged, GatherContract, StagedRanks);

}  // namespace
}  // namespace lockstep::parallel::testing
