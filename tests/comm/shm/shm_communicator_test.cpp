#include <csignal>

#include <sys/resource.h>

#include "comm/contracts.hpp"
#include "lockstep/observe/log.hpp"
#include "support/mpi_world.hpp"

// Ranks of one host that exchange data through memory which all of them map.

namespace lockstep::comm {
namespace {

using testing::name_of_ranks;

const auto shm = ::testing::Values(testing::processes("shm"));
INSTANTIATE_TEST_SUITE_P(Shm, CommunicatorContract, shm, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Shm, HostCommunicatorContract, shm, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Shm, BatchContract, shm, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Shm, HostBatchContract, shm, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Shm, HostWaitingContract, shm, name_of_ranks);

TEST(ShmBackend, IsChosenForRanksOfOneHost) {
  testing::with_world([](Communicator& group) { EXPECT_EQ(group.backend(), "shm"); });
}

}  // namespace
}  // namespace lockstep::comm
