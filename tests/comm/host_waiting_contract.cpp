// What communicators on host memory do whoever waits for their operations: one thread, several or
// none. Small operations may run on a thread that waits for them.

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/contracts.hpp"
#include "comm/expectations.hpp"
#include "support/core_share.hpp"
#include "support/timeout_multiplier.hpp"

namespace lockstep::comm {
namespace {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(HostWaitingContract);

void run_threads(int count, const std::function<void()>& body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body);
  for (std::thread& thread : threads) thread.join();
}

TEST_P(HostWaitingContract, SeveralThreadsMayWaitForOneOperation) {
  run([](Communicator& group) {
    for (int round = 0; round < 30; ++round) {
      std::vector<float> values(round % 3 == 0 ? 100'000 : 100, 1.0F);
      const Work work = group.all_reduce(Buffer(std::span(values)));
      run_threads(3, [&] {
        work.wait();
        EXPECT_EQ(values.back(), static_cast<float>(group.size()));
      });
    }
  });
}

TEST_P(HostWaitingContract, OperationsThatNobodyWaitsForEnd) {
  run([](Communicator& group) {
    for (int round = 0; round < 30; ++round) {
      float value = 1;
      const Work work = group.all_reduce({&value, 1, DType::f32});
      while (!work.is_completed()) std::this_thread::sleep_for(std::chrono::microseconds(20));
      EXPECT_EQ(work.exception(), nullptr);
      EXPECT_EQ(value, static_cast<float>(group.size()));
      // Others find the progress thread awake, or asleep.
      if (round % 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
}

// The others compute, and wait later.
TEST_P(HostWaitingContract, WhoWaitsIsNotHeldUpByRanksThatDoNot) {
  run([](Communicator& group) {
    group.barrier().wait();
    float value = 1;
    const Work work = group.all_reduce({&value, 1, DType::f32});
    if (group.rank() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    work.wait();
    if (group.rank() > 0 || group.size() == 1) return;
    EXPECT_LT(work.times()->finished - work.times()->submitted, std::chrono::milliseconds(1000));
  });
}

TEST_P(HostWaitingContract, OperationsEndInTheOrderOfTheCallsWhateverIsWaitedFor) {
  run([](Communicator& group) {
    const auto ranks = static_cast<float>(group.size());
    for (std::size_t round = 0; round < 20; ++round) {
      std::vector<std::vector<float>> buffers;
      for (const std::size_t size : {8, 20'000, 9, 10}) buffers.emplace_back(size, 1.0F);
      std::vector<Work> works;
      const std::size_t count = round % 4 + 1;
      for (std::size_t i = 0; i < count; ++i)
        works.push_back(group.all_reduce(Buffer(std::span(buffers[i]))));
      std::thread other([&] { works[count / 2].wait(); });
      works.back().wait();
      other.join();
      for (std::size_t i = 0; i < count; ++i) {
        EXPECT_TRUE(works[i].is_completed());
        EXPECT_THAT(buffers[i], ::testing::Each(ranks));
        ASSERT_TRUE(works[i].times());
        if (i > 0) {
          EXPECT_LE(works[i - 1].times()->finished, works[i].times()->started);
        }
      }
    }
  });
}

TEST_P(HostWaitingContract, RanksMayWaitForTwoGroupsInDifferentOrders) {
  run([](Communicator& group) {
    const CommunicatorPtr other = group.split(0, group.rank());
    for (int round = 0; round < 20; ++round) {
      float one = 1, two = 2;
      const Work first = group.all_reduce({&one, 1, DType::f32});
      const Work second = other->all_reduce({&two, 1, DType::f32});
      const bool is_even = group.rank() % 2 == 0;
      (is_even ? first : second).wait();
      (is_even ? second : first).wait();
      EXPECT_EQ(one, static_cast<float>(group.size()));
      EXPECT_EQ(two, static_cast<float>(2 * group.size()));
    }
  });
}

TEST_P(HostWaitingContract, AbortReachesAllWhoWaitForASmallOperation) {
  run([](Communicator& group) {
    if (group.size() == 1) return;
    if (group.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      group.abort("rank 0 ran out of memory");
      return;
    }
    float value = 1;
    const Work work = group.all_reduce({&value, 1, DType::f32});
    run_threads(2, [&] {
      try {
        work.wait();
        ADD_FAILURE() << "no error";
      } catch (const PeerFailure& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr("rank 0 ran out of memory"));
      }
    });
  });
}

// From another thread of the rank that waits, as a session's does.
TEST_P(HostWaitingContract, AbortOfTheOwnRankEndsItsWait) {
  run([](Communicator& group) {
    if (group.size() == 1) return;
    if (group.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return;
    }
    std::thread aborter([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      group.abort("the job has failed");
    });
    float value = 1;
    EXPECT_THROW(group.all_reduce({&value, 1, DType::f32}).wait(), PeerFailure);
    aborter.join();
  });
}

TEST_P(HostWaitingContract, AllWhoWaitForAnAbsentRankHearOfTheTimeOut) {
  run(
      [](Communicator& group) {
        if (group.size() == 1) return;
        if (group.rank() == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(700));
          return;
        }
        float value = 0;
        const Work work = group.all_reduce({&value, 1, DType::f32});
        run_threads(2, [&] {
          try {
            work.wait();
            ADD_FAILURE() << "rank " << group.rank() << " got a result from nowhere";
          } catch (const Error& error) {  // another rank's clock may have been faster
            EXPECT_THAT(error.what(), ::testing::HasSubstr("timed out"));
          }
        });
      },
      {.timeout = std::chrono::milliseconds(300)});
}

// However busy the machine is: time without a core does not count. Ranks may share a process.
TEST_P(HostWaitingContract, IdleRankTakesHardlyAnyProcessorTime) {
  run([](Communicator& group) {
    std::vector<float> few(10), many(100'000);
    for (int i = 0; i < 10; ++i) {
      group.all_reduce(Buffer(std::span(few))).wait();
      group.all_reduce(Buffer(std::span(many))).wait();
      group.all_reduce(Buffer(std::span(few)));
    }
    group.barrier().wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const double taken = testing::core_share_of_idling();
    constexpr double share = 0.05 * lockstep::testing::timeout_multiplier;
    EXPECT_LT(taken, share * group.size());
  });
}

}  // namespace
}  // namespace lockstep::comm
