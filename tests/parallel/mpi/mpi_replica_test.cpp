#include "comm/hier/placed_ranks.hpp"
#include "parallel/contracts.hpp"
#include "support/mpi_world.hpp"

namespace lockstep::parallel::testing {
namespace {

using lockstep::testing::ContractRanks, lockstep::testing::name_of_ranks, lockstep::testing::placed,
    lockstep::testing::Placement;

// Over the memory of the host, which is chosen.
const auto processes = ::testing::Values(lockstep::testing::processes());
INSTANTIATE_TEST_SUITE_P(Mpi, ReplicaContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, UseContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, UserHookContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, RewrappingContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, StepGraphContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, SyncBatchNormContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, BucketReductionContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, CommHookContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, StaticGraphContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, WeightContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, ZeroContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, GatherContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, GatheredUseContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, ZeroWriteContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, LossScaleContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, PlannerContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, PeriodicAveragingContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, DelayedReductionContract, processes, name_of_ranks);

ContractRanks over(const std::string& backend) {
  ContractRanks ranks = lockstep::testing::processes(backend);
  ranks.name = backend;
  return ranks;
}

// Over each kind of host backend.
const auto all_backends = ::testing::Values(lockstep::testing::processes(), over("mpi"),
                                            over("tcp"), placed("hier", Placement::by_host));
INSTANTIATE_TEST_SUITE_P(Mpi, MixedDtypesContract, all_backends, name_of_ranks);

}  // namespace
}  // namespace lockstep::parallel::testing
