#include "comm/shm/shm_executor.hpp"

#include <csignal>
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/expectations.hpp"
#include "comm/groups.hpp"
#include "lockstep/comm/host_values.hpp"
#include "lockstep/comm/memory.hpp"
#include "lockstep/comm/thread_world.hpp"
#include "support/timeout_multiplier.hpp"

// The shared window without a launcher: ranks are threads that each map it, or a child process.

namespace lockstep::comm {
namespace {

/// Random values, all-reduced; as bytes.
template <class T>
std::string sum_of_random_values(Communicator& group, std::size_t count, ReduceOp reduction) {
  std::minstd_rand generator(static_cast<unsigned>(group.rank()) + 7);
  std::uniform_real_distribution<float> distribution(-3, 3);
  std::vector<T> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(static_cast<T>(distribution(generator)));
  group.all_reduce(Buffer(std::span(values)), reduction).wait();
  return {reinterpret_cast<const char*>(values.data()), count * sizeof(T)};
}

std::vector<std::string> all_reduced_sums(Communicator& group) {
  std::vector<std::string> sums;
  for (const std::size_t count : {5, 3001, 200'003})
    for (const ReduceOp& reduction : {ReduceOp::sum(), ReduceOp::average()}) {
      sums.push_back(sum_of_random_values<float>(group, count, reduction));
      sums.push_back(sum_of_random_values<double>(group, count, reduction));
      sums.push_back(sum_of_random_values<BFloat16>(group, count, reduction));
      sums.push_back(sum_of_random_values<Half>(group, count, reduction));
    }
  return sums;
}

TEST(ShmExecutor, GivesTheBitsOfMessages) {
  for (const int ranks : {2, 3, 5}) {
    std::vector<std::string> by_messages;
    run_ranks(ranks, [&](Communicator& group) {
      const auto sums = all_reduced_sums(group);
      if (group.rank() == 0) by_messages = sums;
    });
    run_over_window(ranks,
                    [&](Communicator& group) { EXPECT_EQ(all_reduced_sums(group), by_messages); });
  }
}

/// Random values in the group's memory, from `offset` elements on, all-reduced; as bytes.
template <class T>
std::string sum_in_place(Communicator& group, std::size_t count, ReduceOp reduction,
                         std::size_t offset) {
  const auto memory = allocate_for(group, (count + offset) * sizeof(T));
  if (!memory) throw std::runtime_error("no memory of the group");
  std::minstd_rand generator(static_cast<unsigned>(group.rank()) + 7);
  std::uniform_real_distribution<float> distribution(-3, 3);
  const std::span<T> values(static_cast<T*>(memory->data()) + offset, count);
  for (T& value : values) value = static_cast<T>(distribution(generator));
  group.all_reduce(Buffer(values), reduction).wait();
  return {reinterpret_cast<const char*>(values.data()), count * sizeof(T)};
}

TEST(ShmExecutor, GivesTheBitsOfMessagesInMemoryOfTheGroup) {
  for (const int ranks : {2, 3, 4, 5})
    run_over_window(ranks, [](Communicator& group) {
      for (const std::size_t count : {1, 3001, 4096, 8191, 200'003})
        for (const std::size_t offset : {0, 3, 4096})
          for (const ReduceOp& reduction : {ReduceOp::sum(), ReduceOp::average()}) {
            EXPECT_EQ(sum_in_place<float>(group, count, reduction, offset),
                      sum_of_random_values<float>(group, count, reduction));
            EXPECT_EQ(sum_in_place<double>(group, count, reduction, offset),
                      sum_of_random_values<double>(group, count, reduction));
            EXPECT_EQ(sum_in_place<BFloat16>(group, count, reduction, offset),
                      sum_of_random_values<BFloat16>(group, count, reduction));
            EXPECT_EQ(sum_in_place<Half>(group, count, reduction, offset),
                      sum_of_random_values<Half>(group, count, reduction));
          }
    });
}

// Counts of which a part for each rank, rounded to lines, leaves something over.
TEST(ShmExecutor, SumsTheLastElementsInMemoryOfTheGroup) {
  const auto expect_all_summed = [](Communicator& group, auto tag, std::int64_t count) {
    using T = typename decltype(tag)::type;
    const auto memory = allocate_for(group, static_cast<std::size_t>(count) * sizeof(T));
    ASSERT_TRUE(memory);
    const std::span<T> values(static_cast<T*>(memory->data()), static_cast<std::size_t>(count));
    std::ranges::copy(contract_values<T>(group.rank(), count), values.begin());
    group.all_reduce(Buffer(values)).wait();
    EXPECT_EQ(
        count_wrong(std::vector<T>(values.begin(), values.end()), ReduceKind::sum, group.size()), 0)
        << count << ' ' << dtype_of<T> << " on " << group.size() << " ranks";
  };
  for (const int ranks : {2, 3, 5, 7, 8})
    run_over_window(ranks, [&](Communicator& group) {
      for (std::int64_t more = 0; more <= 2 * ranks; ++more) {
        expect_all_summed(group, TypeTag<std::uint8_t>(), 16'384 * group.size() + more);
        expect_all_summed(group, TypeTag<BFloat16>(), 8192 * group.size() + more);
        expect_all_summed(group, TypeTag<float>(), 4096 * group.size() + more);
      }
    });
}

TEST(ShmExecutor, SumsWhereOnlySomeRanksHaveTheirBuffersInMemoryOfTheGroup) {
  run_over_window(3, [](Communicator& group) {
    const std::string expected = sum_of_random_values<float>(group, 100'000, ReduceOp::sum());
    for (int without = 0; without < 3; ++without)
      EXPECT_EQ(group.rank() == without
                    ? sum_of_random_values<float>(group, 100'000, ReduceOp::sum())
                    : sum_in_place<float>(group, 100'000, ReduceOp::sum(), 0),
                expected);
  });
}

TEST(ShmExecutor, GathersScattersAndBroadcastsInMemoryOfTheGroup) {
  run_over_window(3, [](Communicator& group) {
    const std::vector<std::int64_t> counts{30'001, 0, 17};
    const std::int64_t total = 30'018, own = counts[static_cast<std::size_t>(group.rank())];
    const std::int64_t begin = group.rank() == 0 ? 0 : 30'001;
    const auto memory = allocate_for(group, static_cast<std::size_t>(total) * sizeof(float));
    ASSERT_TRUE(memory);
    float* const values = static_cast<float*>(memory->data());
    const std::vector<float> mine = contract_values<float>(group.rank(), total);
    std::ranges::copy(mine, values);
    group
        .reduce_scatter(ConstBuffer(values, total, DType::f32),
                        Buffer(values + begin, own, DType::f32), ReduceOp::sum(), counts)
        .wait();
    EXPECT_EQ(count_wrong(std::vector<float>(values + begin, values + begin + own), ReduceKind::sum,
                          3, begin),
              0);
    group
        .all_gather(ConstBuffer(values + begin, own, DType::f32), Buffer(values, total, DType::f32),
                    counts)
        .wait();
    EXPECT_EQ(count_wrong(std::vector<float>(values, values + total), ReduceKind::sum, 3), 0);
    std::ranges::copy(mine, values);
    group.broadcast(Buffer(values, total, DType::f32), 2).wait();
    EXPECT_EQ(std::vector<float>(values, values + total), contract_values<float>(2, total));
  });
}

TEST(ShmExecutor, ServesSixtyFourRanksOnFewCores) {
  run_over_window(64, [](Communicator& group) {
    for (const std::int64_t count : {3, 5001}) {
      auto values = contract_values<float>(group.rank(), count);
      group.all_reduce(Buffer(std::span(values))).wait();
      EXPECT_EQ(count_wrong(values, ReduceKind::sum, group.size()), 0) << count;
    }
    const CommunicatorPtr part = group.split(group.rank() % 8, 0);
    EXPECT_EQ(all_reduce_scalar(*part, 1.0), 8.0);
  });
}

TEST(ShmWindow, SeesThatARankIsGoneBeforeItsParentHasWaitedForIt) {
  auto made = std::make_unique<shm::Window>(2);
  const shm::Window& window = *made;
  made->enter(0);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    shm::Window theirs(2, window.address());
    theirs.enter(1);
    if (write(ready[1], "x", 1) == 1) pause();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(window.is_there(1));
  kill(child, SIGKILL);
  siginfo_t end{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &end, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(window.is_there(1));
  shm::ShmExecutor executor(std::move(made), 0, "world", true);
  const Operation barrier;
  EXPECT_THROW(executor.run({&barrier, 1}, host::Deadline()), host::PeerGone);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
}

TEST(ShmExecutor, CarriesThousandsOfMessagesInOneBatch) {
  using namespace std::chrono;
  run_over_window(2, [](Communicator& group) {
    const int other = 1 - group.rank();
    auto sent = contract_values<float>(group.rank(), 5000);
    std::vector<float> received(sent.size());
    const auto begin = steady_clock::now();
    group
        .batch([&] {
          for (float& value : sent) group.send(Buffer(&value, 1, DType::f32), other);
          for (float& value : received) group.receive(Buffer(&value, 1, DType::f32), other);
        })
        .wait();
    EXPECT_LT(steady_clock::now() - begin, seconds(10) * lockstep::testing::timeout_multiplier);
    EXPECT_EQ(received, contract_values<float>(other, 5000));
  });
}

TEST(ShmExecutor, MessageThatNobodyReceivedIsNoticedAtTheNextCollective) {
  run_over_window(3, [](Communicator& group) {
    float lost = 1;
    if (group.rank() == 1) group.send(Buffer(&lost, 1, DType::f32), 0).wait();
    try {
      for (int i = 0; i < 3; ++i) group.barrier().wait();
      ADD_FAILURE() << "rank " << group.rank() << " noticed nothing";
    } catch (const Error& error) {
      EXPECT_EQ(dynamic_cast<const Mismatch*>(&error) != nullptr, group.rank() == 0);
      EXPECT_THAT(error.what(), ::testing::HasSubstr(
                                    "rank 0 of world has not received what rank 1 sent it by send "
                                    "to rank 0 #0 of 1 f32, and is in a later barrier #0"));
    }
  });
}

TEST(ShmExecutor, MessageOfARankThatIsAheadIsNotMissed) {
  run_over_window(2, [](Communicator& group) {
    for (int i = 0; i < 2'000; ++i) {
      float value = 1;
      if (group.rank() == 1) group.send(Buffer(&value, 1, DType::f32), 0).wait();
      if (group.rank() == 0) group.receive(Buffer(&value, 1, DType::f32), 1).wait();
      group.all_reduce(Buffer(&value, 1, DType::f32)).wait();
    }
  });
}

TEST(ShmExecutor, NamesARankOnceThatManyMessagesWaitFor) {
  auto window = std::make_unique<shm::Window>(2);
  shm::Window theirs(2, window->address());
  window->enter(0);
  theirs.enter(1);
  shm::ShmExecutor executor(std::move(window), 0, "world", true);
  float value = 0;
  const Operation receive{.kind = OperationKind::receive,
                          .dtype = DType::f32,
                          .output = reinterpret_cast<std::byte*>(&value),
                          .count = 1,
                          .peer = 1};
  const std::vector<Operation> batch(3, receive);
  host::Deadline deadline;
  deadline.set(host::Clock::now() + std::chrono::milliseconds(50));
  try {
    executor.run(batch, deadline);
    FAIL() << "rank 1 has sent nothing";
  } catch (const host::TransferTimeout& timeout) {
    EXPECT_EQ(timeout.missing, std::vector{1});
  }
}

TEST(ShmWaiting, GoesOnForOthersWhereARankHasLeftWithItsPartDone) {
  shm::Window window(3);
  auto theirs = std::make_unique<shm::Window>(3, window.address());
  shm::Window late(3, window.address());
  window.enter(0);
  theirs->enter(1);
  late.enter(2);
  shm::Waiting waiting(window);
  host::Deadline deadline;
  deadline.set(host::Clock::now() + std::chrono::milliseconds(500));
  waiting.set_deadline(deadline);
  bool is_left = false;
  const auto missing = [&] {
    const std::vector<int> ranks = is_left ? std::vector{2} : std::vector{1, 2};
    theirs.reset();  // right after this rank has looked
    is_left = true;
    return ranks;
  };
  try {
    waiting.until(
        window.board(0).bell, [] { return false; }, missing);
    FAIL() << "rank 2 has done nothing";
  } catch (const host::TransferTimeout& timeout) {
    EXPECT_EQ(timeout.missing, std::vector{2});
  }
}

TEST(ShmWindow, IsNotMetByAnotherJob) {
  shm::Window window(2);
  std::string address = window.address();
  char& last_of_token = address[address.find_last_of(' ') - 1];
  last_of_token = last_of_token == '0' ? '1' : '0';
  EXPECT_THROW(shm::Window(2, address), Unsupported);
  EXPECT_THROW(shm::Window(3, window.address()), Unsupported);
}

// Where two containers number their processes alike, the address leads to a file of someone else's.
TEST(ShmWindow, LeavesTheLocksOfOtherFilesAlone) {
  std::FILE* const file = std::tmpfile();
  ASSERT_TRUE(file);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  ASSERT_EQ(fcntl(fileno(file), F_SETLK, &lock), 0);
  const std::string place = std::to_string(getpid()) + ' ' + std::to_string(fileno(file));
  EXPECT_THROW(shm::Window(2, place + " 0123456789abcdef"), Unsupported);
  lock = {};
  lock.l_type = F_WRLCK;
  ASSERT_EQ(fcntl(fileno(file), F_OFD_GETLK, &lock), 0);
  EXPECT_NE(lock.l_type, F_UNLCK);
  std::fclose(file);
}

}  // namespace
}  // namespace lockstep::comm
