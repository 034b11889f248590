#include "parallel/bucket_reduction_contract.hpp"
#include "parallel/comm_hook_contract.hpp"
#include "parallel/delayed_reduction_contract.hpp"
#include "parallel/gather_contract.hpp"
#include "parallel/gathered_use_contract.hpp"
#include "parallel/loss_scale_contract.hpp"
#include "parallel/periodic_averaging_contract.hpp"
#include "parallel/planner_contract.hpp"
#include "parallel/replica_contract.hpp"
#include "parallel/rewrapping_contract.hpp"
#include "parallel/static_graph_contract.hpp"
#include "parallel/step_graph_contract.hpp"
#include "parallel/sync_batch_norm_contract.hpp"
#include "parallel/use_contract.hpp"
#include "parallel/user_hook_contract.hpp"
#include "parallel/weight_contract.hpp"
#include "parallel/zero_contract.hpp"
#include "parallel/zero_write_contract.hpp"
#include "support/mpi_world.hpp"

namespace lockstep::parallel::testing {
namespace {

struct MpiRanks {
  static void run(const std::function<void(Communicator&)>& body) {
    lockstep::testing::with_world(body);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, ReplicaContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, UseContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, UserHookContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, RewrappingContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, StepGraphContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, SyncBatchNormContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, BucketReductionContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, CommHookContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, StaticGraphContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, WeightContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, ZeroContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, GatherContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, GatheredUseContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, ZeroWriteContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, LossScaleContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, PlannerContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, PeriodicAveragingContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, DelayedReductionContract, MpiRanks);

}  // namespace
}  // namespace lockstep::parallel::testing
