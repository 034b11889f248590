#include <chrono>
#include <stdexcept>
#include <thread>

#include "comm/contracts.hpp"
#include "comm/expectations.hpp"
#include "lockstep/comm/thread_world.hpp"
#include "runtime/background_failure.hpp"

namespace lockstep::comm {
namespace {

using lockstep::testing::name_of_ranks, lockstep::testing::threads;

const auto thread_groups = ::testing::Values(threads(1), threads(2), threads(3), threads(4));
INSTANTIATE_TEST_SUITE_P(Thread, CommunicatorContract, thread_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, HostCommunicatorContract, thread_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, BatchContract, thread_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, HostBatchContract, thread_groups, name_of_ranks);
INSTANTIATE_TEST_SUITE_P(Thread, HostWaitingContract, thread_groups, name_of_ranks);

TEST(ThreadWorld, ReportsTheFirstRankThatThrows) {
  try {
    run_ranks(3, [](Communicator& group) {
      if (group.rank() == 1) throw OutOfMemory("no memory for 7 bytes");
      group.barrier().wait();
    });
    FAIL() << "no error";
  } catch (const OutOfMemory& error) {
    EXPECT_STREQ(error.what(), "no memory for 7 bytes");
  }
}

TEST(ThreadWorld, TellsTheOtherRanksWhoFailed) {
  std::string seen;
  EXPECT_THROW(run_ranks(2,
                         [&](Communicator& group) {
                           if (group.rank() == 0) throw std::runtime_error("first");
                           try {
                             group.barrier().wait();
                           } catch (const PeerFailure& error) {
                             seen = error.what();
                           }
                         }),
               std::runtime_error);
  EXPECT_THAT(seen, ::testing::HasSubstr("rank 0 failed: first"));
}

TEST(ThreadWorld, DropsWorkWithoutWaiting) {
  std::vector<float> values(4, 1.0f);
  run_ranks(1, [&](Communicator& group) { group.all_reduce(Buffer(std::span(values))); });
  EXPECT_EQ(values[0], 1.0f);
}

// The others have minutes left, but nothing to wait for.
TEST(ThreadWorld, MemberThatLeavesEarlyFailsWhatNeedsIt) {
  std::string seen;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(run_ranks(3,
                         [&](Communicator& group) {
                           float value = 1;
                           const Buffer buffer{&value, 1, DType::f32};
                           for (int step = 0; step < (group.rank() == 1 ? 2 : 4); ++step) {
                             try {
                               group.all_reduce(buffer).wait();
                             } catch (const PeerFailure& error) {
                               EXPECT_EQ(step, 2);
                               if (group.rank() == 0) seen = error.what();
                               throw;
                             }
                           }
                         },
                         {.timeout = std::chrono::minutes(5)}),
               PeerFailure);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_THAT(seen, ::testing::HasSubstr("all_reduce #2 of 1 f32 (sum): rank 1 left world after 2 "
                                         "collectives"));
}

TEST(ThreadWorld, MemberThatLeavesAPartFailsWhatNeedsItThere) {
  std::string seen;
  EXPECT_THROW(run_ranks(3,
                         [&](Communicator& group) {
                           const auto part = group.split(group.rank() == 2 ? -1 : 0, 0);
                           if (!part) return;
                           part->barrier().wait();
                           if (part->rank() == 1) return;
                           try {
                             part->barrier().wait();
                           } catch (const PeerFailure& error) {
                             seen = error.what();
                             throw;
                           }
                         },
                         {.timeout = std::chrono::minutes(5)}),
               PeerFailure);
  EXPECT_THAT(seen, ::testing::HasSubstr("rank 1 left world/0.0 after 1 collectives"));
}

TEST(ThreadWorld, MemberThatLeavesEarlyFailsMessagesToAndFromIt) {
  for (const bool receives : {true, false}) {
    std::string seen;
    const auto start = std::chrono::steady_clock::now();
    EXPECT_THROW(run_ranks(2,
                           [&](Communicator& group) {
                             group.barrier().wait();
                             if (group.rank() == 1) return;
                             std::vector<float> values(100'000);
                             const Buffer buffer{std::span(values)};
                             try {
                               (receives ? group.receive(buffer, 1) : group.send(buffer, 1)).wait();
                             } catch (const PeerFailure& error) {
                               seen = error.what();
                               throw;
                             }
                           },
                           {.timeout = std::chrono::minutes(5)}),
                 PeerFailure);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
    EXPECT_THAT(seen, ::testing::HasSubstr("rank 1 left world after 1 collectives"));
  }
}

// Who has left is not what a batch waits for: the third rank is only late.
TEST(ThreadWorld, BatchWaitsForLateMembersAlthoughAnotherHasLeft) {
  run_ranks(3, [](Communicator& group) {
    float from_1 = 0, from_2 = 0, own = static_cast<float>(group.rank());
    if (group.rank() == 0) {
      group
          .batch([&] {
            group.receive({&from_1, 1, DType::f32}, 1);
            group.receive({&from_2, 1, DType::f32}, 2);
          })
          .wait();
      EXPECT_EQ(from_1 + from_2, 3);
      return;
    }
    if (group.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    group.send({&own, 1, DType::f32}, 0).wait();
  });
}

TEST(ThreadWorld, MembersMayLeaveWhileOthersEndWhatAllBegan) {
  for (int round = 0; round < 20; ++round)
    run_ranks(3, [](Communicator& group) {
      std::vector<std::int32_t> values(50'000, 1);
      for (int step = 0; step < 3; ++step) {
        if (group.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        group.all_reduce(Buffer(std::span(values)));
      }
      group.barrier().wait();
      EXPECT_EQ(values.front(), 27);
    });
}

TEST(ThreadWorld, DestructionWaitsNoLongerThanTheLimitForWorkThatNobodyJoins) {
  auto group = make_thread_group(
      2, {.timeout = std::chrono::minutes(5), .leave_timeout = std::chrono::milliseconds(200)});
  float value = 1;
  const Work work = group[0]->all_reduce({&value, 1, DType::f32});
  const auto start = std::chrono::steady_clock::now();
  group[0].reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_THROW(work.wait(), PeerFailure);
  // The other rank hears why.
  try {
    group[1]->all_reduce({&value, 1, DType::f32}).wait();
    FAIL() << "no error";
  } catch (const PeerFailure& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 0 of world left the group with all_reduce "
                                                   "#0 of 1 f32 (sum) still under way"));
  }
}

// What rank 0 has started and dropped fails on its own; the caller hears of rank 1.
TEST(ThreadWorld, LeavesNoFailureBehindForWhatComesAfterIt) {
  std::vector<float> values(4, 1.0f);
  EXPECT_THROW(run_ranks(2,
                         [&](Communicator& group) {
                           if (group.rank() == 1) throw std::runtime_error("rank 1 gives up");
                           group.all_reduce(Buffer(std::span(values)));
                         }),
               std::runtime_error);
  EXPECT_NO_THROW(raise_background_failure());
}

TEST(ThreadWorld, MemberLeavesWithItsBodyWhoeverHasAHandle) {
  CommunicatorPtr kept;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(run_ranks(2,
                         [&](Communicator& group) {
                           if (group.rank() == 0) {
                             kept = CommunicatorPtr(&group);
                             return;
                           }
                           std::vector<float> values(4);
                           group.all_reduce(Buffer(std::span(values))).wait();
                         },
                         {.timeout = std::chrono::seconds(20)}),
               PeerFailure);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(ThreadWorld, RefusesMessagesOfAnotherLabelOrId) {
  for (const bool by_id : {false, true})
    EXPECT_THROW(run_ranks(2,
                           [&](Communicator& group) {
                             std::vector<float> values(4);
                             const Buffer buffer{std::span(values)};
                             const auto own = static_cast<std::uint64_t>(group.rank());
                             const CollectiveOptions options{
                                 .label = by_id || own == 0 ? "activations" : "gradients",
                                 .id = {.owner = 7, .step = by_id ? own : 0}};
                             if (own == 0)
                               group.send(buffer, 1, options).wait();
                             else
                               group.receive(buffer, 0, options).wait();
                           },
                           {.timeout = std::chrono::seconds(20)}),
                 Mismatch);
}

TEST(ThreadWorld, RefusesAnEmptyGroup) { EXPECT_THROW(make_thread_group(0), InvalidArgument); }

TEST(ThreadWorld, RunsUncheckedWhenAsked) {
  run_ranks(3,
            [](Communicator& group) {
              auto values = contract_values<float>(group.rank(), 100'003);
              group.all_reduce(Buffer(std::span(values))).wait();
              EXPECT_EQ(count_wrong(values, ReduceKind::sum, group.size()), 0);
            },
            {.timeout = std::chrono::seconds(60), .check_signatures = false});
}

}  // namespace
}  // namespace lockstep::comm
