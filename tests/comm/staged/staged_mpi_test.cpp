// Buffers on GPUs, one a rank, that are exchanged through the host.

#include "comm/contracts.hpp"
#include "comm/uploading_communicator.hpp"
#include "lockstep/comm/host_values.hpp"
#include "support/gpu_ranks.hpp"

namespace lockstep::comm {
namespace {

using testing::ContractRanks, testing::name_of_ranks;

const auto gpus = ::testing::Values(ContractRanks{
    .name = "Gpus",
    .run =
        [](const ContractRanks::Body& body, CommunicatorOptions options) {
          options.backend = "mpi";
          const auto uploading = [&](Communicator& group) { run_uploading(group, body); };
          testing::with_world(uploading, options, testing::gpu_of_rank());
        },
    .missing = testing::missing_gpus});
INSTANTIATE_TEST_SUITE_P(Staged, CommunicatorContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Staged, HostCommunicatorContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Staged, BatchContract, gpus, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Staged, HostBatchContract, gpus, name_of_ranks);

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
