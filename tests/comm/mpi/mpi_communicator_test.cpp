#include "comm/contracts.hpp"
#include "comm/uploading_communicator.hpp"
#include "support/mpi_world.hpp"

namespace lockstep::comm {
namespace {

using testing::ContractRanks, testing::name_of_ranks;

const auto mpi = ::testing::Values(testing::processes("mpi"));
INSTANTIATE_TEST_SUITE_P(Mpi, CommunicatorContract, mpi, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, HostCommunicatorContract, mpi, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, BatchContract, mpi, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, HostBatchContract, mpi, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Mpi, HostWaitingContract, mpi, name_of_ranks);

// The way in which the suite reaches devices, tried where there is none.
const auto uploading = ::testing::Values(ContractRanks{
    .name = "Processes", .run = [](const ContractRanks::Body& body, CommunicatorOptions options) {
      options.backend = "mpi";
      testing::with_world([&](Communicator& group) { run_uploading(group, body); }, options);
    }});
INSTANTIATE_TEST_SUITE_P(Uploading, CommunicatorContract, uploading, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Uploading, BatchContract, uploading, name_of_ranks);

TEST(MpiBootstrap, KnowsItsPlace) {
  Bootstrap& bootstrap = testing::test_bootstrap();
  EXPECT_EQ(bootstrap.kind(), "mpi");
  EXPECT_TRUE(bootstrap.is_one_host());
  EXPECT_EQ(bootstrap.local_rank(), bootstrap.rank());
  EXPECT_EQ(bootstrap.peers().size(), static_cast<std::size_t>(bootstrap.size()));
  EXPECT_EQ(
      bootstrap.broadcast_bytes(std::to_string(bootstrap.rank()), bootstrap.size() - 1, "rank"),
      std::to_string(bootstrap.size() - 1));
}

TEST(MpiBootstrap, RefusesRanksThatExchangeDifferentThings) {
  Bootstrap& bootstrap = testing::test_bootstrap();
  if (bootstrap.size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  const std::string label = bootstrap.rank() == 0 ? "devices" : "cores";
  try {
    bootstrap.all_gather_bytes("1", label);
    FAIL() << "no error";
  } catch (const Mismatch& error) {
    EXPECT_THAT(error.what(), ::testing::AllOf(::testing::HasSubstr("the devices"),
                                               ::testing::HasSubstr("the cores")));
  }
}

TEST(MpiBootstrap, MakesACommunicatorOfItsOwnKind) {
  const auto check = [](Communicator& group) {
    EXPECT_EQ(group.backend(), "mpi");
    EXPECT_EQ(group.rank(), testing::test_bootstrap().rank());
  };
  testing::with_world(check, {.backend = "mpi"});
}

TEST(CommunicatorBackends, AreChosenByName) {
  testing::with_world([](Communicator& group) { EXPECT_EQ(group.backend(), "tcp"); },
                      {.backend = "tcp"});
  const auto make = [](const std::string& name) {
    return make_communicator(testing::test_bootstrap(), cpu, {.backend = name});
  };
  EXPECT_THROW(make("pigeons"), InvalidArgument);
  if (testing::test_bootstrap().size() == 1) return;
  EXPECT_THROW(make("self"), Unsupported);
}

TEST(CommunicatorBackends, MustBeTheSameOnEveryRank) {
  Bootstrap& bootstrap = testing::test_bootstrap();
  if (bootstrap.size() == 1) GTEST_SKIP() << "one rank agrees with itself";
  try {
    make_communicator(bootstrap, cpu, {.backend = bootstrap.rank() == 1 ? "tcp" : "mpi"});
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("mpi on rank 0 but tcp on rank 1"));
  }
}

// Ranks that MPI brought together, and that exchange data over sockets.
const auto tcp = ::testing::Values(testing::processes("tcp"));
INSTANTIATE_TEST_SUITE_P(TcpOverMpi, CommunicatorContract, tcp, name_of_ranks);

}  // namespace
}  // namespace lockstep::comm
