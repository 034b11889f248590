#include <random>
#include <thread>

#include "comm/contracts.hpp"
#include "comm/expectations.hpp"
#include "comm/groups.hpp"
#include "comm/hier/layout.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/comm/thread_world.hpp"
#include "support/timeout_multiplier.hpp"

// Groups over several hosts without a launcher: ranks are threads, and hosts are what the test
// says. Those of one host share a real window.

namespace lockstep::comm {
namespace {

using lockstep::testing::ContractRanks, lockstep::testing::name_of_ranks;

ContractRanks on_hosts(std::string name, const Hosts& hosts, Messages messages) {
  return {.name = std::move(name),
          .run = [=](const ContractRanks::Body& body, const CommunicatorOptions& options) {
            run_over_hosts(hosts, body, options, messages);
          }};
}

const ContractRanks two_and_two = on_hosts("TwoAndTwo", {0, 0, 1, 1}, Messages::threads),
                    two_and_two_by_sockets =
                        on_hosts("TwoAndTwoBySockets", {0, 0, 1, 1}, Messages::sockets),
                    two_and_one = on_hosts("TwoAndOne", {0, 0, 1}, Messages::threads);
const auto host_groups =
    ::testing::Values(two_and_two, two_and_two_by_sockets, two_and_one,
                      on_hosts("ThreeAndOne", {0, 0, 0, 1}, Messages::threads),
                      on_hosts("OneOneAndTwo", {0, 1, 2, 2}, Messages::sockets),
                      on_hosts("Interleaved", {0, 1, 0, 1, 2}, Messages::threads));
INSTANTIATE_TEST_SUITE_P(Hier, CommunicatorContract, host_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Hier, BatchContract, host_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Hier, HostBatchContract, host_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Hier, HostWaitingContract, host_groups, name_of_ranks);
// Those where hosts hold powers of two of ranks, in order: sums have the bits of other backends.
const auto aligned = ::testing::Values(two_and_two, two_and_two_by_sockets, two_and_one);
INSTANTIATE_TEST_SUITE_P(Hier, HostCommunicatorContract, aligned, name_of_ranks);

/// Random values, reduced in both ways; as bytes.
template <class T>
void add_sums(Communicator& group, std::size_t count, ReduceOp reduction,
              std::vector<std::string>& sums) {
  std::minstd_rand generator(static_cast<unsigned>(group.rank()) + 7);
  std::uniform_real_distribution<float> distribution(-100, 100);
  std::vector<T> values, part(count / static_cast<std::size_t>(group.size()));
  for (std::size_t i = 0; i < count; ++i)
    values.push_back(static_cast<T>(std::abs(distribution(generator))));
  const std::size_t whole = part.size() * static_cast<std::size_t>(group.size());
  group
      .reduce_scatter(ConstBuffer(std::span(values).first(whole)), Buffer(std::span(part)),
                      reduction)
      .wait();
  sums.emplace_back(reinterpret_cast<const char*>(part.data()), part.size() * sizeof(T));
  group.all_reduce(Buffer(std::span(values)), reduction).wait();
  sums.emplace_back(reinterpret_cast<const char*>(values.data()), count * sizeof(T));
}

std::vector<std::string> sums_of_both_ways(Communicator& group) {
  std::vector<std::string> sums;
  for (const std::size_t count : {5, 300'007}) {
    for (const ReduceOp& reduction : {ReduceOp::sum(), ReduceOp::average(), ReduceOp::product(),
                                      ReduceOp::scaled_sum(0.3 + group.rank())}) {
      add_sums<float>(group, count, reduction, sums);
      add_sums<BFloat16>(group, count, reduction, sums);
    }
    for (const ReduceOp& reduction : {ReduceOp::sum(), ReduceOp::average(), ReduceOp::min()}) {
      add_sums<double>(group, count, reduction, sums);
      add_sums<Half>(group, count, reduction, sums);
      add_sums<std::int32_t>(group, count, reduction, sums);
      add_sums<std::uint8_t>(group, count, reduction, sums);
    }
  }
  return sums;
}

TEST(HierExecutor, GivesTheBitsOfMessagesWhereHostsHoldPowersOfTwo) {
  for (const Hosts& hosts : {Hosts{0, 0, 1, 1}, Hosts{0, 0, 1}, Hosts{0, 0, 1, 1, 2}}) {
    std::vector<std::vector<std::string>> by_messages(hosts.size());
    run_ranks(static_cast<int>(hosts.size()), [&](Communicator& group) {
      by_messages[static_cast<std::size_t>(group.rank())] = sums_of_both_ways(group);
    });
    run_over_hosts(hosts, [&](Communicator& group) {
      const auto& expected = by_messages[static_cast<std::size_t>(group.rank())];
      const auto sums = sums_of_both_ways(group);
      ASSERT_EQ(sums.size(), expected.size());
      for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_TRUE(sums[i] == expected[i]) << i;
    });
  }
}

TEST(HierExecutor, GivesTheSameBitsOnAllRanksWhereverTheyAre) {
  for (const Hosts& hosts : {Hosts{0, 1, 0, 1, 0}, Hosts{0, 0, 0, 1, 1}}) {
    std::vector<std::vector<std::string>> all(hosts.size());
    for (int run = 0; run < 2; ++run)
      run_over_hosts(hosts, [&](Communicator& group) {
        auto& sums = all[static_cast<std::size_t>(group.rank())];
        const auto again = sums_of_both_ways(group);
        EXPECT_TRUE(sums.empty() || sums == again);
        sums = again;
      });
    for (const auto& sums : all)
      for (std::size_t i = 1; i < sums.size(); i += 2) EXPECT_TRUE(sums[i] == all[0][i]) << i;
  }
}

TEST(HierExecutor, MismatchIsToldWithTheRanksOfTheGroupOnEveryHost) {
  for (const Hosts& hosts : {Hosts{0, 0, 1, 1}, Hosts{0, 1, 0, 1, 2}, Hosts{0, 1, 2, 2}})
    for (int culprit = 0; culprit < static_cast<int>(hosts.size()); ++culprit)
      run_over_hosts(hosts, [&](Communicator& group) {
        std::vector<float> values(group.rank() == culprit ? 11 : 10);
        expect_mismatch(group, [&] { group.all_reduce(Buffer(std::span(values))).wait(); },
                        {"rank " + std::to_string(culprit) + " called all_reduce #0 of 11 f32",
                         "called all_reduce #0 of 10 f32"});
      });
}

TEST(HierExecutor, RankThatStaysAwayIsNamedWhereverItIs) {
  for (const Hosts& hosts : {Hosts{0, 0, 1, 1}, Hosts{0, 1, 0, 1}})
    for (const int culprit : {1, 3})
      run_over_hosts(hosts,
                     [&](Communicator& group) {
                       float value = 0;
                       if (group.rank() == culprit) {
                         std::this_thread::sleep_for(std::chrono::milliseconds(900));
                         return;
                       }
                       std::string text;
                       try {
                         group.all_reduce({&value, 1, DType::f32}).wait();
                       } catch (const Timeout& error) {
                         text = error.what();
                       } catch (const PeerFailure& error) {
                         text = error.what();
                       }
                       EXPECT_THAT(text,
                                   ::testing::EndsWith("timed out after 500 ms, waiting for rank " +
                                                       std::to_string(culprit)));
                     },
                     {.timeout = std::chrono::milliseconds(500)});
}

// Its host's leader is not in the collective, so nobody there could tell the others.
TEST(HierExecutor, AbortOfARankThatLeadsNobodyReachesAllHosts) {
  for (const Messages messages : {Messages::threads, Messages::sockets})
    run_over_hosts(
        {0, 0, 1, 1},
        [](Communicator& group) {
          if (group.rank() == 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(600));
            return;
          }
          std::vector<float> values(1000);
          const Work work = group.all_reduce(Buffer(std::span(values)));
          if (group.rank() == 1) {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            group.abort("rank 1 ran out of memory");
          }
          const auto begin = std::chrono::steady_clock::now();
          try {
            work.wait();
            ADD_FAILURE() << "rank 0 was not there";
          } catch (const PeerFailure& error) {
            EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 1 ran out of memory"));
          }
          EXPECT_LT(std::chrono::steady_clock::now() - begin,
                    std::chrono::milliseconds(500) * lockstep::testing::timeout_multiplier);
        },
        {.timeout = std::chrono::seconds(60)}, messages);
}

TEST(HierExecutor, AbortInTheMiddleOfAnExchangeEndsIt) {
  run_over_hosts({0, 0, 1, 1}, [](Communicator& group) {
    std::vector<float> values(20'000'000);
    const Work work = group.all_reduce(Buffer(std::span(values)));
    if (group.rank() == 3) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      group.abort("rank 3 ran out of memory");
    }
    EXPECT_THROW(work.wait(), PeerFailure);
  });
}

TEST(HierExecutor, PartsAreWhatTheirHostsAre) {
  run_over_hosts({0, 0, 1, 1}, [](Communicator& group) {
    EXPECT_EQ(group.backend(), "hier");
    const CommunicatorPtr host = group.split(group.rank() / 2, 0);
    EXPECT_EQ(host->backend(), "shm");
    EXPECT_EQ(all_reduce_scalar(*host, double{1}), 2);
    const CommunicatorPtr across = group.split(group.rank() % 2, 0);
    EXPECT_EQ(across->backend(), "hier");
    EXPECT_EQ(all_reduce_scalar(*across, static_cast<double>(group.rank())),
              group.rank() % 2 ? 4 : 2);
    const CommunicatorPtr three = group.split(group.rank() > 0 ? 0 : -1, -group.rank());
    ASSERT_EQ(three == nullptr, group.rank() == 0);
    if (three) {
      EXPECT_EQ(all_reduce_scalar(*three, static_cast<double>(group.rank())), 6);
    }
  });
}

// Rank 2 meets rank 3 by its host's memory, and rank 0 by messages, which waits for 3's.
TEST(HierExecutor, MessagesOfABatchGoOnSideBySideWithinAHostAndBetween) {
  run_over_hosts({0, 0, 1, 1}, [](Communicator& group) {
    std::vector<float> values(100'000, static_cast<float>(group.rank())), one(values), two(values);
    const ConstBuffer own{std::span(values)};
    const Buffer first{std::span(one)}, second{std::span(two)};
    if (group.rank() == 2) {
      group.batch([&] { group.receive(first, 0), group.receive(second, 3); }).wait();
      EXPECT_THAT(one, ::testing::Each(0.0F));
      EXPECT_THAT(two, ::testing::Each(3.0F));
    } else if (group.rank() == 3) {
      group.send(own, 2).wait();
      group.send(own, 0).wait();
    } else if (group.rank() == 0) {
      group.receive(first, 3).wait();
      group.send(own, 2).wait();
    }
  });
}

TEST(HierExecutor, MessageThatDoesNotMatchWithinAHostIsToldWithTheRanksOfTheGroup) {
  run_over_hosts({0, 0, 1, 1}, [](Communicator& group) {
    std::vector<float> values(group.rank() == 2 ? 10 : 11);
    std::string text;
    try {
      if (group.rank() == 2) group.send(ConstBuffer(std::span(values)), 3).wait();
      if (group.rank() == 3) group.receive(Buffer(std::span(values)), 2).wait();
      group.barrier().wait();
    } catch (const Error& error) {
      text = error.what();
    }
    EXPECT_THAT(text, ::testing::AllOf(::testing::HasSubstr("rank 3 of world"),
                                       ::testing::HasSubstr("receive from rank 2 #0 of 11 f32"),
                                       ::testing::HasSubstr("send to rank 3 #0 of 10 f32")));
  });
}

// Between hosts collectives go another way, and do not meet what lies between.
TEST(HierExecutor, MessageThatNobodyReceivedIsNotTakenForALaterOne) {
  run_over_hosts(
      {0, 0, 1, 1},
      [](Communicator& group) {
        float lost = 1, due = 2;
        if (group.rank() == 2) group.send({&lost, 1, DType::f32}, 1).wait();
        group.barrier().wait();
        if (group.rank() == 2) group.send({&due, 1, DType::f32}, 1).wait();
        if (group.rank() != 1) return;
        const Work work = group.receive({&due, 1, DType::f32}, 2);
        EXPECT_THROW(work.wait(), Mismatch) << due;
      },
      {.timeout = std::chrono::seconds(60)}, Messages::sockets);
}

// Neither meets the other: the one that waits tells what for, by the control channel.
void expect_message_to_meet_a_collective(Messages messages, std::int64_t count, bool is_sent) {
  const News news(4);
  run_over_hosts(
      {0, 0, 1, 1},
      [&](Communicator& group) {
        std::vector<float> values(static_cast<std::size_t>(group.rank() == 1 ? count : 10));
        const Buffer own{std::span(values)};
        std::string text;
        const auto begin = std::chrono::steady_clock::now();
        try {
          if (group.rank() != 1)
            group.all_reduce(own, ReduceOp::sum(), {.label = "gradients"}).wait();
          else
            (is_sent ? group.send(own, 2) : group.receive(own, 2)).wait();
        } catch (const Mismatch& error) {
          EXPECT_EQ(group.rank(), 2);
          text = error.what();
        } catch (const PeerFailure& error) {
          text = error.what();
        }
        EXPECT_THAT(text, ::testing::HasSubstr(detail::concat(
                              "rank 2 of world called all_reduce #0 of 10 f32 (sum) 'gradients', "
                              "but rank 1 called ",
                              is_sent ? "send to" : "receive from", " rank 2 #0 of ", count)));
        EXPECT_LT(std::chrono::steady_clock::now() - begin,
                  std::chrono::seconds(15) * lockstep::testing::timeout_multiplier);
      },
      {.timeout = std::chrono::seconds(60) * lockstep::testing::timeout_multiplier}, messages,
      &news);
}

TEST(HierExecutor, MessageToARankOfAnotherHostThatIsInACollectiveIsToldOnAll) {
  for (const bool is_sent : {false, true}) {
    expect_message_to_meet_a_collective(Messages::threads, 5, is_sent);
    expect_message_to_meet_a_collective(Messages::sockets, is_sent ? 8'000'000 : 5, is_sent);
  }
}

TEST(HierExecutor, MessageThatIsLateIsNoMismatch) {
  const News news(4);
  run_over_hosts(
      {0, 0, 1, 1},
      [](Communicator& group) {
        std::vector<float> values(10, static_cast<float>(group.rank()));
        const Buffer own{std::span(values)};
        if (group.rank() >= 2) std::this_thread::sleep_for(std::chrono::milliseconds(1300));
        if (group.rank() == 1) group.receive(own, 2).wait();
        if (group.rank() == 2) group.send(own, 1).wait();
        if (group.rank() == 0)  // in one batch with what all call
          group.batch([&] { group.receive(own, 3), group.barrier(); }).wait();
        else if (group.rank() == 3)
          group.batch([&] { group.send(own, 0), group.barrier(); }).wait();
        else
          group.barrier().wait();
        EXPECT_EQ(values[0], group.rank() < 2 ? 3 - group.rank() : group.rank());
        EXPECT_EQ(all_reduce_scalar(group, double{1}), 4);
      },
      {.timeout = std::chrono::seconds(60) * lockstep::testing::timeout_multiplier},
      Messages::sockets, &news);
}

TEST(HierExecutor, MessageThatNobodyOnTheHostReceivedIsNoticedAtTheNextCollective) {
  run_over_hosts(
      {0, 0, 1, 1},
      [](Communicator& group) {
        float lost = 1;
        if (group.rank() == 2) group.send({&lost, 1, DType::f32}, 3).wait();
        try {
          for (int i = 0; i < 3; ++i) group.barrier().wait();
          ADD_FAILURE() << "rank " << group.rank() << " noticed nothing";
        } catch (const Error& error) {
          EXPECT_THAT(error.what(),
                      ::testing::HasSubstr("rank 3 of world has not received what rank "
                                           "2 sent it by send to rank 3 #0 of 1 f32"));
        }
      },
      {.timeout = std::chrono::seconds(60)}, Messages::sockets);
}

TEST(HostLayout, OrdersHostsByTheirFirstRank) {
  const std::vector<int> hosts{7, 3, 7, 5, 3};
  const hier::HostLayout layout(hosts, 4);
  EXPECT_EQ(layout.hosts, (std::vector<std::vector<int>>{{0, 2}, {1, 4}, {3}}));
  EXPECT_EQ(layout.host, 1);
  EXPECT_EQ(layout.place, 1);
  EXPECT_EQ(layout.leaders(), (std::vector{0, 1, 3}));
  EXPECT_FALSE(layout.is_leader());
}

}  // namespace
}  // namespace lockstep::comm
