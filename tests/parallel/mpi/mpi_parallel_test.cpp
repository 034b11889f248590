#include "parallel/clip_contract.hpp"
#include "parallel/collective_contract.hpp"
#include "parallel/divergence_contract.hpp"
#include "parallel/layerwise_contract.hpp"
#include "parallel/mean_metric_contract.hpp"
#include "parallel/mesh_contract.hpp"
#include "support/mpi_world.hpp"

namespace lockstep::parallel::testing {
namespace {

struct MpiRanks {
  static void run(const std::function<void(Communicator&)>& body) {
    lockstep::testing::with_world(body);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, MeshContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, ClipContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, LayerwiseContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, DivergenceContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, MeanMetricContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, CollectiveContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, ComparedCollectives, MpiRanks);

}  // namespace
}  // namespace lockstep::parallel::testing
