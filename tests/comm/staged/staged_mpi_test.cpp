// Buffers on GPUs, one a rank, that are exchanged through the host.

#include "comm/batch_contract.hpp"
#include "comm/host_batch_contract.hpp"
#include "comm/host_communicator_contract.hpp"
#include "comm/uploading_communicator.hpp"
#include "support/gpu_ranks.hpp"

namespace lockstep::comm {
namespace {

struct StagedRanks {
  static std::string missing() { return testing::missing_gpus(); }

  static void run(const std::function<void(Communicator&)>& body,
                  const CommunicatorOptions& options) {
    CommunicatorOptions over_mpi = options;
    over_mpi.backend = "mpi";
    const auto uploading = [&](Communicator& group) { run_uploading(group, body); };
    testing::with_world(uploading, over_mpi, testing::gpu_of_rank());
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Staged, CommunicatorContract, StagedRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Staged, HostCommunicatorContract, StagedRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Staged, BatchContract, StagedRanks);
INSTANTIATE_TYPED_TEST_SUITE_P(Staged, HostBatchContract, StagedRanks);

TEST(StagedBackends, AreChosenByTheNameOfTheHosts) {
  if (const std::string missing = testing::missing_gpus(); !missing.empty())
    GTEST_SKIP() << missing;
  Bootstrap& bootstrap = testing::test_bootstrap();
  std::vector<std::string> names{"mpi", "tcp"};
  names.push_back(bootstrap.size() == 1 ? "self" : "shm");
  for (const std::string& name : names)
    testing::with_world(
        [&](Communicator& group) {
          EXPECT_EQ(group.backend(), name + ", staged");
          EXPECT_EQ(all_reduce_scalar(group, std::int64_t{1}), group.size());
        },
        {.backend = name}, testing::gpu_of_rank());
}

TEST(StagedBackends, RefuseWhatTheHostsBackendDoes) {
  if (const std::string missing = testing::missing_gpus(); !missing.empty())
    GTEST_SKIP() << missing;
  try {
    make_communicator(testing::test_bootstrap(), testing::gpu_of_rank(), {.backend = "hier"});
    FAIL() << "no error";
  } catch (const Unsupported& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("\"hier\" cannot serve this job: the ranks are "
                                                   "on one host"));
  }
}

}  // namespace
}  // namespace lockstep::comm
