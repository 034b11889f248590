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
    over_shm.backend = "mapped";
    testing::with_world(body, over_shm);
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Mapped, CommunicatorContract, SharedMemoryRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mapped, HostCommunicatorContract, SharedMemoryRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mapped, BatchContract, SharedMemoryRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mapped, HostBatchContract, SharedMemoryRanks);

TEST(MappedBackend, SaysItsName) {
  SharedMemoryRanks::run([](Communicator& group) { EXPECT_EQ(group.backend(), "mapped"); }, {});
}

}  // namespace
}  // namespace lockstep::comm
