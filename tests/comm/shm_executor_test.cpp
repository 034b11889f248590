#include "comm/shm/shm_executor.hpp"

#include <barrier>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <random>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/communicator_contract.hpp"
#include "comm/host/host_backend.hpp"
#include "lockstep/comm/thread_world.hpp"
#include "support/timeout_multiplier.hpp"

// The shared window without a launcher: ranks are threads that each map it, or a child process.

namespace lockstep::comm {
namespace {

void run_over_window(int ranks, const std::function<void(Communicator&)>& body) {
  std::vector<std::string> told(static_cast<std::size_t>(ranks));
  std::barrier arrived(ranks);
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  const auto play = [&](int rank) {
    const auto exchange = [&](std::string_view own) {
      told[static_cast<std::size_t>(rank)] = own;
      arrived.arrive_and_wait();
      auto all = told;
      arrived.arrive_and_wait();
      return all;
    };
    auto window = shm::enter_window({members, rank, exchange});
    auto executor = std::make_unique<shm::ShmExecutor>(std::move(window), rank, "world", true);
    const CommunicatorOptions options{.timeout = std::chrono::seconds(60)};
    const auto group = make_intrusive<Communicator>(
        std::make_unique<host::HostBackend>(std::move(executor), "world", options));
    body(*group);
    arrived.arrive_and_wait();  // nobody leaves while another still waits
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(play, rank);
  for (std::thread& thread : threads) thread.join();
}

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

std::vector<std::string> sums_of(Communicator& group) {
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
      const auto sums = sums_of(group);
      if (group.rank() == 0) by_messages = sums;
    });
    run_over_window(ranks, [&](Communicator& group) { EXPECT_EQ(sums_of(group), by_messages); });
  }
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
    EXPECT_LT(steady_clock::now() - begin, seconds(10) * testing::timeout_multiplier);
    EXPECT_EQ(received, contract_values<float>(other, 5000));
  });
}

TEST(ShmExecutor, MessageThatNobodyReceivedIsNotTakenForALaterOne) {
  run_over_window(2, [](Communicator& group) {
    float lost = 1, due = 2;
    if (group.rank() == 1) group.send(Buffer(&lost, 1, DType::f32), 0).wait();
    group.barrier().wait();
    if (group.rank() == 1) {
      group.send(Buffer(&due, 1, DType::f32), 0).wait();
    } else {
      const Work work = group.receive(Buffer(&due, 1, DType::f32), 1);
      EXPECT_THROW(work.wait(), Mismatch);
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
  deadline.set(host::Clock::now() + std::chrono::milliseconds(100));
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
  address.back() = address.back() == '0' ? '1' : '0';
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
