#include <csignal>

#include <sys/resource.h>

#include "comm/batch_contract.hpp"
#include "comm/host_batch_contract.hpp"
#include "comm/host_communicator_contract.hpp"
#include "comm/host_waiting_contract.hpp"
#include "lockstep/observe/log.hpp"
#include "support/mpi_world.hpp"

// Ranks of one host that exchange data through memory which all of them map.

namespace lockstep::comm {
namespace {

struct ShmRanks {
  static void run(const std::function<void(Communicator&)>& body,
                  const CommunicatorOptions& options) {
    CommunicatorOptions over_shm = options;
    over_shm.backend = "shm";
    testing::with_world(body, over_shm);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Shm, CommunicatorContract, ShmRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Shm, HostCommunicatorContract, ShmRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Shm, BatchContract, ShmRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Shm, HostBatchContract, ShmRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Shm, HostWaitingContract, ShmRanks);

TEST(ShmBackend, IsChosenForRanksOfOneHost) {
  testing::with_world([](Communicator& group) { EXPECT_EQ(group.backend(), "shm"); });
}

}  // namespace
}  // namespace lockstep::comm
