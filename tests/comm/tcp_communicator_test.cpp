#include <algorithm>
#include <thread>
#include <vector>

#include <sys/resource.h>

#include "comm/contracts.hpp"
#include "comm/groups.hpp"
#include "support/timeout_multiplier.hpp"

namespace lockstep::comm {
namespace {

using lockstep::testing::ContractRanks, lockstep::testing::name_of_ranks;

// Ranks as threads, but talking over real sockets on loopback.
ContractRanks sockets(int ranks) {
  return {.name = "Sockets" + std::to_string(ranks),
          .run = [=](const ContractRanks::Body& body, const CommunicatorOptions& options) {
            run_over_messages(ranks, body, options);
          }};
}

const auto socket_groups = ::testing::Values(sockets(2), sockets(3), sockets(9));
INSTANTIATE_TEST_SUITE_P(Tcp, CommunicatorContract, socket_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Tcp, HostCommunicatorContract, socket_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Tcp, BatchContract, socket_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Tcp, HostBatchContract, socket_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Tcp, HostWaitingContract, socket_groups, name_of_ranks);

/// A group of which one rank is gone; each other one calls `call`, and must hear of it soon.
void expect_all_hear_of_the_gone(int ranks, int gone,
                                 const std::function<Work(Communicator&)>& call) {
  const MessagesOfThreads connect(ranks, Messages::sockets);
  Exchange exchange(static_cast<std::size_t>(ranks));
  const auto play = [&](int rank) {
    const auto gather = [&](std::string_view own) { return exchange(rank, own); };
    auto group = make_intrusive<Communicator>(host::make_message_backend(
        connect(rank, gather), "world",
        {.timeout = std::chrono::seconds(30), .check_signatures = false}));
    if (rank == gone) {
      group.reset();
      return exchange.meet();
    }
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_THROW(call(*group).wait(), PeerFailure) << "rank " << rank;
    EXPECT_LT(std::chrono::steady_clock::now() - begin,
              std::chrono::seconds(5) * lockstep::testing::timeout_multiplier)
        << "rank " << rank;
    exchange.meet();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(play, rank);
  for (std::thread& thread : threads) thread.join();
}

// Data goes from rank to rank, so most wait for others that wait for it.
TEST(TcpCommunicator, RankThatIsGoneInTheMiddleOfABroadcastIsToldToAll) {
  std::vector<std::vector<float>> values(5, std::vector<float>(20'000'000));
  expect_all_hear_of_the_gone(5, 2, [&](Communicator& group) {
    return group.broadcast(Buffer(std::span(values[static_cast<std::size_t>(group.rank())])));
  });
}

TEST(TcpCommunicator, RankThatIsGoneIsToldToThoseThatWaitForMessagesOfWhoWaitsForIt) {
  std::vector<float> values(4);
  expect_all_hear_of_the_gone(4, 0, [&](Communicator& group) {
    float& value = values[static_cast<std::size_t>(group.rank())];
    return group.receive({&value, 1, DType::f32}, group.rank() - 1);
  });
}

// Each group has connections of its own; many systems start processes with 1,024 open files.
TEST(TcpGroups, MayBeMoreThanTheProcessCouldOpenFilesForAtFirst) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{std::min<rlim_t>(256, before.rlim_max), before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  sockets(2).run(
      [](Communicator& world) {
        std::vector<CommunicatorPtr> groups;
        for (int i = 0; i < 300; ++i) groups.push_back(world.split(0, world.rank()));
        float sum = 1.0F;
        groups.back()->all_reduce({&sum, 1, DType::f32}).wait();
        EXPECT_EQ(sum, 2.0F);
      },
      {});
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace lockstep::comm
