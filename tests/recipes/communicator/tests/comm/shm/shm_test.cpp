#include "comm/batch_contract.hpp"
#include "comm/host_batch_contract.hpp"
#include "comm/host_communicator_contract.hpp"
#include "support/mpi_world.hpp"

namespace lockstep::comm {
namespace {

struct SharedMemoryRanks {
  static void run(const std::function<void(Communicator&)>& body,
                  const CommunicatorOptions& options) {
    CommunicatorOptions over_shm = options;
    over_shm.backend = "shm";
    testing::with_world(body, over_shm);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Shm, CommunicatorContract, SharedMemoryRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Shm, HostCommunicatorContract, SharedMemoryRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Shm, BatchContract, SharedMemoryRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Shm, HostBatchContract, SharedMemoryRanks);

TEST(ShmBackend, SaysItsName) {
  SharedMemoryRanks::run([](Communicator& group) { EXPECT_EQ(group.backend(), "shm"); }, {});
}

}  // namespace
}  // namespace lockstep::comm
