#include "engine/scheduler.hpp"

#include <atomic>
#include <chrono>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

namespace simgpu {
namespace {

using namespace std::chrono_literals;

/// A scheduler with a few queues; tasks note their names when they run.
class World {
 public:
  explicit World(Order order, std::uint64_t seed = 0, unsigned queues = 3)
      : scheduler_(mutex_, order, seed, observer_) {
    const Scheduler::Lock lock(mutex_);
    for (unsigned i = 0; i < queues; ++i)
      queues_.push_back(&scheduler_.add_queue(0, i + 1, i + 1, "stream " + std::to_string(i + 1)));
  }

  TaskPtr add(std::size_t queue, std::string name, std::vector<TaskPtr> after = {}) {
    return add_running(
        queue,
        [this, name = std::move(name)] {
          trace_.push_back(name);
          return true;
        },
        std::move(after));
  }

  TaskPtr add_running(std::size_t queue, std::function<bool()> run, std::vector<TaskPtr> after = {},
                      bool meets_peers = false) {
    Scheduler::Lock lock(mutex_);
    scheduler_.tick();
    Task task;
    task.run = std::move(run);
    task.after = std::move(after);
    task.meets_peers = meets_peers;
    return scheduler_.add(*queues_[queue], std::move(task), lock);
  }

  TaskPtr last(std::size_t queue) { return queues_[queue]->last; }

  void wait(const TaskPtr& task) {
    Scheduler::Lock lock(mutex_);
    scheduler_.tick();
    scheduler_.wait(task, lock);
  }

  bool is_done(const TaskPtr& task) {
    Scheduler::Lock lock(mutex_);
    scheduler_.tick();
    return scheduler_.is_done(task, lock);
  }

  void wait_all() {
    for (Queue* queue : queues_) wait(queue->last);
  }

  void tick() {
    const Scheduler::Lock lock(mutex_);
    scheduler_.tick();
  }

  /// Names in the order in which they ran; to be read when all is done.
  const std::vector<std::string>& trace() const { return trace_; }

 private:
  std::mutex mutex_;
  SchedulerObserver observer_;
  std::vector<std::string> trace_;
  Scheduler scheduler_;
  std::vector<Queue*> queues_;
};

// A program of its own for each `program`: launches on random streams, random waits, some syncs.
std::vector<std::string> run_program(Order order, std::uint64_t seed, unsigned program = 7) {
  World world(order, seed, 4);
  std::mt19937 choose(program);
  std::vector<TaskPtr> tasks;
  for (int i = 0; i < 60; ++i) {
    const std::size_t queue = choose() % 4;
    std::vector<TaskPtr> after;
    if (!tasks.empty() && choose() % 2 == 0) after.push_back(tasks[choose() % tasks.size()]);
    tasks.push_back(world.add(queue, std::to_string(i), after));
    if (choose() % 10 == 0) world.wait(tasks[choose() % tasks.size()]);
  }
  world.wait_all();
  return world.trace();
}

TEST(Scheduler, RepeatsItselfForTheSameSeed) {
  for (const Order order : {Order::random, Order::early, Order::late})
    for (std::uint64_t seed = 0; seed < 20; ++seed)
      EXPECT_EQ(run_program(order, seed), run_program(order, seed)) << "seed " << seed;
}

// The executor is fast or slow between two calls of the host.
TEST(Scheduler, RepeatsItselfHoweverFastTheMachineIs) {
  const auto run = [](Order order, std::chrono::microseconds pause) {
    World world(order, 5, 2);
    std::vector<bool> seen;
    for (int i = 0; i < 40; ++i) {
      const TaskPtr task = world.add(i % 2, std::to_string(i));
      std::this_thread::sleep_for(pause);
      seen.push_back(world.is_done(task));
      if (i % 8 == 7) world.wait(world.last(0));
    }
    world.wait_all();
    return std::pair(world.trace(), seen);
  };
  for (const Order order : {Order::random, Order::late})
    EXPECT_EQ(run(order, 0us), run(order, 1000us));
}

TEST(Scheduler, InterleavesOtherwiseForAnotherSeed) {
  std::set<std::vector<std::string>> traces;
  for (std::uint64_t seed = 0; seed < 20; ++seed) traces.insert(run_program(Order::random, seed));
  EXPECT_GE(traces.size(), 19u);
}

TEST(Scheduler, RespectsStreamsAndEventsForEverySeed) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Order order = std::array{Order::random, Order::late, Order::early}[seed % 3];
    const auto program = static_cast<unsigned>(seed);
    World world(order, seed, 4);
    std::mt19937 choose(program);
    std::vector<std::atomic<bool>> done(80);
    std::atomic<int> violations = 0;
    std::vector<TaskPtr> tasks;
    std::array<int, 4> latest{-1, -1, -1, -1};
    for (int i = 0; i < 80; ++i) {
      const std::size_t queue = choose() % 4;
      std::vector<int> before{latest[queue]};
      std::vector<TaskPtr> after;
      if (i > 0 && choose() % 2 == 0) {
        before.push_back(static_cast<int>(choose() % static_cast<unsigned>(i)));
        after.push_back(tasks[static_cast<std::size_t>(before.back())]);
      }
      latest[queue] = i;
      tasks.push_back(world.add_running(
          queue,
          [&done, &violations, i, before] {
            for (const int other : before)
              if (other >= 0 && !done[static_cast<std::size_t>(other)]) ++violations;
            done[static_cast<std::size_t>(i)] = true;
            return true;
          },
          after));
    }
    world.wait_all();
    EXPECT_EQ(violations, 0) << "seed " << seed;
  }
}

TEST(Scheduler, LetsStreamsOvertakeEachOther) {
  bool first = false, second = false;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    World world(Order::random, seed);
    world.add(0, "long");
    world.add(0, "a");
    world.add(1, "long");
    world.add(1, "b");
    world.wait_all();
    const auto& trace = world.trace();
    const bool a_first =
        std::find(trace.begin(), trace.end(), "a") < std::find(trace.begin(), trace.end(), "b");
    (a_first ? first : second) = true;
  }
  EXPECT_TRUE(first && second);
}

TEST(Scheduler, RunsAtOnceInTheEarlyOrder) {
  World world(Order::early);
  for (int i = 0; i < 10; ++i) world.add(static_cast<std::size_t>(i) % 3, std::to_string(i));
  while (!world.is_done(world.last(0))) {
  }
  world.wait_all();
  EXPECT_EQ(world.trace(),
            (std::vector<std::string>{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}));
}

TEST(Scheduler, RunsOnlyWhatIsWaitedForInTheLateOrder) {
  World world(Order::late);
  const TaskPtr a = world.add(0, "a");
  world.add(1, "b");
  const TaskPtr c = world.add(2, "c", {a});
  world.add(2, "d");
  world.wait(c);
  EXPECT_EQ(world.trace(), (std::vector<std::string>{"a", "c"}));
  world.wait_all();
  EXPECT_EQ(world.trace().size(), 4u);
}

TEST(Scheduler, EndsPollingLoopsInEveryOrder) {
  for (const Order order : {Order::random, Order::early, Order::late}) {
    World world(order, 3);
    for (int i = 0; i < 20; ++i) world.add(0, "a");
    int queries = 1;
    while (!world.is_done(world.last(0))) ++queries;
    EXPECT_LT(queries, 100000);
  }
}

TEST(Scheduler, LetsTimePassForAHostThatOnlyAsks) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    World world(Order::random, seed);
    for (int i = 0; i < 100; ++i) world.add(0, "a");
    int queries = 1;
    while (!world.is_done(world.last(0))) ++queries;
    EXPECT_LT(queries, 300) << "seed " << seed;
  }
}

// As the monitors of two groups do, each for the operation of its own.
TEST(Scheduler, LetsTimePassForThreadsThatAskForDifferentTasks) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    World world(Order::random, seed);
    for (int i = 0; i < 100; ++i) world.add(static_cast<std::size_t>(i) % 2, "a");
    int queries = 1;
    for (bool first = false, second = false; !first || !second; ++queries) {
      first = world.is_done(world.last(0));
      second = world.is_done(world.last(1));
    }
    EXPECT_LT(queries, 300) << "seed " << seed;
  }
}

// A thread waits for what no peer joins: another one sees what is over before that.
TEST(Scheduler, ShowsWhatEndsBeforeWhatAnotherThreadWaitsFor) {
  World world(Order::random, 7);
  std::atomic<bool> reached = false, peer = false;
  for (int i = 0; i < 900; ++i) world.add(0, "before");
  const TaskPtr before = world.last(0);
  const TaskPtr collective = world.add_running(0, [&] { return reached = true, peer.load(); });
  std::thread waiting([&] { world.wait(collective); });
  while (!reached) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(world.is_done(before));
  EXPECT_FALSE(world.is_done(collective));
  peer = true;
  waiting.join();
}

// The queue is full, and its first task is over but for its turn on the machine: the host waits for
// no more than that, and then for space, with which time goes on.
TEST(Scheduler, ShowsWhatIsOverWhileAQueueIsFull) {
  World world(Order::random, 7);
  std::atomic<bool> has_turn = false, reached = false, peer = false;
  std::atomic<int> added = 0;
  TaskPtr before;
  std::thread adding([&] {
    const auto add_some = [&](int count) {
      for (int i = 0; i < count; ++i, ++added) world.add(0, "x");
    };
    world.add_running(0, [&] { return has_turn.load(); });
    add_some(500);
    before = world.last(0);
    world.add_running(0, [&] { return reached = true, peer.load(); });
    add_some(800);
  });
  while (added < 1022) std::this_thread::sleep_for(1ms);  // and those that count apart
  std::this_thread::sleep_for(5ms);
  has_turn = true;
  while (!reached) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(world.is_done(before));
  peer = true;
  adding.join();
}

TEST(Scheduler, HoldsOnlyItsOwnStreamWhileACollectiveWaits) {
  for (const Order order : {Order::random, Order::early, Order::late}) {
    World world(order);
    std::atomic<bool> peer = false;
    const TaskPtr collective = world.add_running(
        0, [&] { return peer.load(); }, {}, true);
    world.add(0, "after it");
    const TaskPtr other = world.add(1, "other");
    world.wait(other);
    EXPECT_FALSE(world.is_done(collective));
    peer = true;
    world.wait_all();
    EXPECT_EQ(world.trace(), (std::vector<std::string>{"other", "after it"}));
  }
}

// Rank 0 waits for a product that its peer needs nothing of, while the peer waits for a collective
// that the host has queued before it fell silent.
TEST(Scheduler, ReachesCollectivesWhileTheHostIsSilent) {
  for (const Order order : {Order::random, Order::late}) {
    World world(order, 11);
    std::atomic<bool> reached = false;
    for (int i = 0; i < 50; ++i) world.add(0, "before");
    world.add_running(
        1, [&] { return reached = true; }, {world.last(0)}, true);
    const auto start = std::chrono::steady_clock::now();
    while (!reached && std::chrono::steady_clock::now() - start < 5s)
      std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(reached);
    world.wait_all();
  }
}

TEST(Scheduler, CollectivesOfOneProcessMeet) {
  World world(Order::random, 5);
  std::atomic<int> here = 0;
  const auto meet = [&here, counted = false]() mutable {
    if (!counted) ++here;
    counted = true;
    return here == 2;
  };
  for (int i = 0; i < 30; ++i) world.add(1, "before");
  world.add_running(0, meet, {}, true);
  world.add_running(1, meet, {}, true);
  world.wait_all();
  EXPECT_EQ(here, 2);
}

TEST(Scheduler, WaitsWhenAQueueIsFull) {
  World world(Order::late);
  for (int i = 0; i < 3000; ++i) world.add(0, "x");
  world.wait_all();
  EXPECT_EQ(world.trace().size(), 3000u);
}

}  // namespace
}  // namespace simgpu
