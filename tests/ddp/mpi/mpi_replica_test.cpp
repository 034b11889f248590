#include "ddp/replica_contract.hpp"
#include "ddp/use_contract.hpp"
#include "support/mpi_world.hpp"

namespace lockstep::ddp::testing {
namespace {

struct MpiRanks {
  static void run(const std::function<void(Communicator&)>& body) {
    lockstep::testing::with_world(body);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, ReplicaContract, MpiRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mpi, UseContract, MpiRanks);

}  // namespace
}  // namespace lockstep::ddp::testing
