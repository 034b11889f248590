#include "parallel/contracts.hpp"
#include "support/mpi_world.hpp"

namespace lockstep::parallel::testing {
namespace {

using lockstep::testing::name_of_ranks;

const auto processes = ::testing::Values(lockstep::testing::processes());
INSTANTIATE_TEST_SUITE_P(Mpi, MeshContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, ClipContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, LayerwiseContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, DivergenceContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, MeanMetricContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, CollectiveContract, processes, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, ComparedCollectives, processes, name_of_ranks);

}  // namespace
}  // namespace lockstep::parallel::testing
