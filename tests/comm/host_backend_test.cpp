#include "comm/host/host_backend.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/comm/errors.hpp"

// Which thread runs the operations of a group on host memory, in which order, and what becomes of
// those that fail on a thread that waits for them.

namespace lockstep::comm::host {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

/// What an executor did, and shall do; outlives it.
struct Script {
  std::function<void(const Deadline&)> body = [](const Deadline&) {};
  std::function<void()> check = [] {};  // by whoever waits for something else
  std::atomic<bool> is_inside{false}, is_aborted{false};
  std::atomic<int> runs{0};
  std::mutex mutex;
  std::vector<std::uint64_t> order;      // sequence numbers of what ran
  std::vector<std::thread::id> threads;  // that ran them
  std::string reason;                    // of the abort

  void await_run() const {
    while (!is_inside) std::this_thread::yield();
  }
  std::thread::id last_thread() {
    const std::lock_guard lock(mutex);
    return threads.back();
  }
  /// A body that only an abort ends, or the deadline.
  void wait_in_vain(const Deadline& deadline) {
    const std::array absent{1};
    while (!is_aborted) {
      if (deadline.is_over(absent)) throw TransferTimeout{{1}};
      std::this_thread::yield();
    }
    const std::lock_guard lock(mutex);
    throw PeerFailure(reason);
  }
};

/// Rank 0 of 2, of which the other is always in time.
class ScriptedExecutor final : public Executor {
 public:
  explicit ScriptedExecutor(Script& script) : script_(script) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::string_view kind() const override { return "scripted"; }
  void run(std::span<const Operation> operations, const Deadline& deadline) override {
    EXPECT_FALSE(script_.is_inside.exchange(true)) << "two threads run at a time";
    ++script_.runs;
    {
      const std::lock_guard lock(script_.mutex);
      script_.order.push_back(operations.front().sequence);
      script_.threads.push_back(std::this_thread::get_id());
    }
    try {
      script_.body(deadline);
    } catch (...) {
      script_.is_inside = false;
      throw;
    }
    script_.is_inside = false;
  }
  void abort(const std::string& reason) noexcept override {
    const std::lock_guard lock(script_.mutex);
    script_.reason = reason;
    script_.is_aborted = true;
  }
  void check() override { script_.check(); }
  std::unique_ptr<Executor> split(const SplitPlan&) override { return nullptr; }

 private:
  Script& script_;
};

class HostBackends : public ::testing::Test {
 protected:
  ~HostBackends() override { EXPECT_FALSE(script.is_inside); }

  CommunicatorPtr make(const CommunicatorOptions& options = {.timeout = 60s}) {
    return make_intrusive<Communicator>(std::make_unique<HostBackend>(
        std::make_unique<ScriptedExecutor>(script), "world", options));
  }
  void await_in_vain() {
    script.body = [this](const Deadline& deadline) { script.wait_in_vain(deadline); };
  }

  Script script;
  std::vector<float> few = std::vector<float>(1024), many = std::vector<float>(1 << 20);
};

void await(const Work& work) {
  while (!work.is_completed()) std::this_thread::sleep_for(10us);
}

TEST_F(HostBackends, SmallCollectiveRunsOnTheThreadThatWaitsForIt) {
  const auto group = make();
  for (int i = 0; i < 3; ++i) {
    // The progress thread may have been faster where this one lost its core in between.
    bool was_here = false;
    for (int attempt = 0; attempt < 100 && !was_here; ++attempt) {
      group->all_reduce(Buffer(std::span(few))).wait();
      was_here = script.last_thread() == std::this_thread::get_id();
    }
    EXPECT_TRUE(was_here) << i;
    std::this_thread::sleep_for(5ms);
  }
}

TEST_F(HostBackends, LargeCollectivesAndMessagesGoOnWithoutAWaiter) {
  const auto group = make();
  group->all_reduce(Buffer(std::span(many))).wait();
  EXPECT_NE(script.last_thread(), std::this_thread::get_id());
  group->send(ConstBuffer(std::span(few)), 1).wait();
  EXPECT_NE(script.last_thread(), std::this_thread::get_id());
}

TEST_F(HostBackends, SmallCollectivesThatNobodyWaitsForAreRunAllTheSame) {
  const auto group = make();
  std::minstd_rand random(7);
  for (int i = 0; i < 2000; ++i) {
    const Work work = group->all_reduce(Buffer(std::span(few)));
    if (random() % 4 == 0) {
      await(work);
      EXPECT_NE(script.last_thread(), std::this_thread::get_id());
    } else {
      work.wait();
    }
    if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 400));
  }
  EXPECT_EQ(script.runs, 2000);
}

TEST_F(HostBackends, SmallCollectiveDoesNotWaitForLongForAWaiter) {
  const auto group = make();
  auto shortest = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 100; ++i) {
    const Work work = group->all_reduce(Buffer(std::span(few)));
    await(work);
    shortest = std::min(shortest, work.times()->started - work.times()->submitted);
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_LT(shortest, 5ms);  // of many, for the machine may be busy
}

// What is waited for last may run first, but for the order of the calls.
TEST_F(HostBackends, NothingPassesWhatWasCalledBefore) {
  const auto group = make();
  std::minstd_rand random(11);
  std::uint64_t calls = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<Work> works;
    for (auto i = random() % 4 + 1; i > 0; --i) {
      works.push_back(group->all_reduce(Buffer(std::span(random() % 4 == 0 ? many : few))));
      ++calls;
    }
    std::thread other([&] { works.front().wait(); });
    works.back().wait();
    for (const Work& work : works) EXPECT_TRUE(work.is_completed());
    other.join();
  }
  const std::lock_guard lock(script.mutex);
  ASSERT_EQ(script.order.size(), calls);
  for (std::uint64_t i = 0; i < calls; ++i) EXPECT_EQ(script.order[i], i);
}

TEST_F(HostBackends, ThreadsThatWaitForOneOperationHaveItRunOnce) {
  const auto group = make();
  for (int round = 1; round <= 300; ++round) {
    const Work work = group->all_reduce(Buffer(std::span(few)));
    std::vector<std::thread> waiters;
    for (int i = 0; i < 3; ++i)
      waiters.emplace_back([&] {
        work.wait();
        EXPECT_TRUE(work.is_completed());
      });
    for (std::thread& waiter : waiters) waiter.join();
    EXPECT_EQ(script.runs, round);
  }
}

TEST_F(HostBackends, AllWhoWaitHearOfAFailure) {
  script.body = [](const Deadline&) { throw OutOfMemory("no memory for 7 bytes"); };
  const auto group = make();
  const Work work = group->all_reduce(Buffer(std::span(few)));
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i)
    waiters.emplace_back([&] { EXPECT_THROW(work.wait(), std::exception); });
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(script.runs, 1);
  EXPECT_THROW(group->barrier().wait(), std::exception);
  EXPECT_EQ(script.runs, 1);
}

/// The failure of a small collective that the calling thread waits for at once.
template <class Failure>
std::string failure_of_small(Communicator& group, std::vector<float>& values) {
  try {
    group.all_reduce(Buffer(std::span(values))).wait();
  } catch (const Failure& error) {
    return error.what();
  }
  return "no failure";
}

TEST_F(HostBackends, TimeOutEndsAnOperationOnAWaitersThread) {
  await_in_vain();
  const auto group = make({.timeout = 200ms});
  EXPECT_THAT(failure_of_small<Timeout>(*group, few),
              HasSubstr("timed out after 200 ms, waiting for rank 1"));
  EXPECT_TRUE(script.is_aborted);  // the others hear of it
}

TEST_F(HostBackends, AbortEndsAnOperationOnAWaitersThread) {
  await_in_vain();
  const auto group = make();
  std::thread aborter([&] {
    script.await_run();
    group->abort("rank 0 ran out of memory");
  });
  EXPECT_THAT(failure_of_small<PeerFailure>(*group, few), HasSubstr("rank 0 ran out of memory"));
  aborter.join();
}

TEST_F(HostBackends, TellsWhatRunsOnAWaitersThread) {
  await_in_vain();
  const auto group = make();
  std::thread aborter([&] {
    script.await_run();
    EXPECT_THAT(group->describe_progress(), HasSubstr("in all_reduce #0 of 1024 f32"));
    group->abort("enough");
  });
  EXPECT_THROW(group->all_reduce(Buffer(std::span(few))).wait(), PeerFailure);
  EXPECT_THAT(group->describe_progress(), HasSubstr("failed: "));
  aborter.join();
}

TEST_F(HostBackends, EndsAfterWhatRunsOnAWaitersThread) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> may_end{false};
    script.body = [&](const Deadline&) {
      while (!may_end) std::this_thread::yield();
    };
    auto group = make();
    const Work work = group->all_reduce(Buffer(std::span(few)));
    std::thread waiter([&] { work.wait(); });
    script.await_run();
    std::thread ender([&] { may_end = true; });
    group.reset();
    EXPECT_TRUE(work.is_completed());
    EXPECT_EQ(work.exception(), nullptr);
    waiter.join();
    ender.join();
  }
}

TEST_F(HostBackends, EndsNoLaterThanTheLimitWhereAWaitersOperationDoesNot) {
  await_in_vain();
  auto group = make({.timeout = 60s, .leave_timeout = 200ms});
  const Work work = group->all_reduce(Buffer(std::span(few)));
  std::thread waiter([&] { EXPECT_THROW(work.wait(), PeerFailure); });
  script.await_run();
  group.reset();
  EXPECT_FALSE(script.is_inside);
  waiter.join();
}

// The first to see the end of the last operation may be the one who takes the group away.
TEST_F(HostBackends, MayEndAsSoonAsItsLastOperationHas) {
  for (int round = 0; round < 300; ++round) {
    auto group = make();
    const Work work = group->all_reduce(Buffer(std::span(few)));
    std::thread waiter([&] { work.wait(); });
    await(work);
    group.reset();
    waiter.join();
  }
}

// Ranks may use either thread, and their sums must have the same bits.
TEST_F(HostBackends, OperationsRoundAsWhereTheGroupWasMade) {
  const auto rounds_up = [] {
    volatile float one = 1.0F, little = 1e-12F;
    return one + little > 1.0F;
  };
  std::atomic<bool> rounded_up{false};
  script.body = [&](const Deadline&) { rounded_up = rounds_up(); };
  const auto group = make();
  std::fesetround(FE_UPWARD);
  for (int i = 0; i < 50; ++i) {
    group->all_reduce(Buffer(std::span(few))).wait();
    EXPECT_FALSE(rounded_up);
    EXPECT_TRUE(rounds_up());
  }
  std::fesetround(FE_TONEAREST);
}

// Hosts that are cut off may be so in the midst of anything.
TEST_F(HostBackends, ATimeOutIsToldAlsoWhereItsConnectionsFailWhileOthersAreAsked) {
  script.body = [](const Deadline&) {
    throw TransferTimeout{.missing = {1}, .may_wait_themselves = true};
  };
  const std::function<void()> failures[] = {
      [] { throw PeerGone{.peer = 1}; },
      [] { throw Error("MPI_Iprobe: an internal error"); },
  };
  for (const auto& failure : failures) {
    const auto registry = std::make_shared<GroupRegistry>();
    registry->set_announcer([](const std::string&) {});
    script.is_aborted = false;
    script.check = [&] {
      registry->receive("answers 0 1 0 1 idle");  // of the group's first collective
      failure();
    };
    const auto group = make_intrusive<Communicator>(std::make_unique<HostBackend>(
        std::make_unique<ScriptedExecutor>(script), "world", CommunicatorOptions{.timeout = 60s},
        GroupMembership(registry)));
    try {
      group->all_reduce(Buffer(std::span(few))).wait();
      ADD_FAILURE() << "it has ended";
    } catch (const Timeout& error) {
      EXPECT_THAT(error.what(), HasSubstr("waiting for rank 1 (idle)"));
    }
    EXPECT_TRUE(script.is_aborted);
  }
}

}  // namespace
}  // namespace lockstep::comm::host
