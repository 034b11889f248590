#include "parallel/contracts.hpp"
#include "parallel/gpu_groups.hpp"
#include "parallel/ranks.hpp"

namespace lockstep::parallel::testing {
namespace {

using lockstep::testing::name_of_ranks;

const auto gpus = ::testing::Values(ranks_over_the_host);
INSTANTIATE_TEST_SUITE_P(Staged, ReplicaContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Staged, MixedDtypesContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Staged, UserHookContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Staged, ZeroContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Staged, GatherContract, gpus, name_of_ranks);

}  // namespace
}  // namespace lockstep::parallel::testing
