#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/shm/heap.hpp"
#include "comm/shm/shm_executor.hpp"
#include "comm/shm/window.hpp"
#include "lockstep/comm/memory.hpp"
#include "support/timeout_multiplier.hpp"

// Memory that the ranks of a host read and write in place, and what becomes of it after a failure.

namespace lockstep::comm {
namespace {

TEST(ShmHeap, WhatOthersWriteAfterAFailureDoesNotReachItsOwner) {
  shm::Window window(2);
  shm::Window other(2, window.address());
  window.enter(0);
  other.enter(1);
  ASSERT_TRUE(window.heap());
  const auto memory = window.heap()->allocate(10'000);
  ASSERT_TRUE(memory);
  auto* const own = static_cast<std::byte*>(memory->data());
  std::byte* const seen = other.heap()->at(0, window.heap()->place_of(own, 10'000, true));
  seen[9'999] = std::byte{1};
  EXPECT_EQ(own[9'999], std::byte{1});
  window.heap()->close();
  window.heap()->detach(own, 10'000);
  seen[9'999] = std::byte{2};
  EXPECT_EQ(own[9'999], std::byte{1});
  EXPECT_FALSE(window.heap()->allocate(1));
}

TEST(ShmHeap, TellsWhereMemoryLiesAndWhetherItIsAlone) {
  shm::Window window(1);
  window.enter(0);
  shm::Heap& heap = *window.heap();
  const auto memory = heap.allocate(10'000);
  auto* const data = static_cast<std::byte*>(memory->data());
  EXPECT_NE(heap.place_of(data, 10'000, true), 0U);
  EXPECT_NE(heap.place_of(data + 4, 9'000, false), 0U);
  EXPECT_EQ(heap.place_of(data + 4, 9'000, true), 0U);
  EXPECT_EQ(heap.place_of(data, 10'001, false), 0U);
  std::byte elsewhere{};
  EXPECT_EQ(heap.place_of(&elsewhere, 1, false), 0U);
}

/// Bytes of the files in memory that this process has open.
std::int64_t reserved_bytes() {
  std::int64_t bytes = 0;
  for (const auto& open : std::filesystem::directory_iterator("/proc/self/fd")) {
    struct stat status {};
    std::error_code gone;
    const auto file = std::filesystem::read_symlink(open, gone).string();
    if (file.starts_with("/memfd:lockstep") && stat(open.path().c_str(), &status) == 0)
      bytes = std::max(bytes, std::int64_t{512} * status.st_blocks);
  }
  return bytes;
}

TEST(ShmHeap, KeepsWhatIsAllocatedAgainAndAgain) {
  constexpr std::int64_t array = 60 << 20, others = 8 << 20;
  shm::Window window(1);
  window.enter(0);
  const auto use_at_once = [&](int arrays) {
    std::vector<IntrusivePtr<Memory>> all;
    for (int i = 0; i < arrays; ++i) all.push_back(window.heap()->allocate(array));
  };
  use_at_once(3);
  EXPECT_LT(reserved_bytes(), array + others);
  for (int i = 0; i < 3; ++i) use_at_once(3);
  EXPECT_GE(reserved_bytes(), 3 * array);
  EXPECT_LT(reserved_bytes(), 3 * array + others);
}

// A rank that is killed in the middle of sums in place: another hears of it, and keeps its memory.
TEST(ShmExecutor, HearsThatARankDiedInTheMiddleOfSumsInPlace) {
  auto made = std::make_unique<shm::Window>(2);
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const std::string address = made->address();
  const auto sum = [](shm::ShmExecutor& executor, std::byte* data, std::uint64_t sequence) {
    const Operation all_reduce{.kind = OperationKind::all_reduce,
                               .dtype = DType::f32,
                               .input = data,
                               .output = data,
                               .count = 4 << 20,
                               .sequence = sequence};
    executor.run({&all_reduce, 1}, host::Deadline());
  };
  made->enter(0);
  const pid_t child = fork();
  if (child == 0) {
    auto window = std::make_unique<shm::Window>(2, address);
    window->enter(1);
    char byte = 'x';
    if (write(go[1], &byte, 1) != 1) _exit(1);
    shm::ShmExecutor executor(std::move(window), 1, "world", true);
    const auto memory = executor.allocate(16 << 20);
    for (std::uint64_t i = 0;; ++i) sum(executor, static_cast<std::byte*>(memory->data()), i);
  }
  char byte = 0;
  ASSERT_EQ(read(go[0], &byte, 1), 1);
  shm::ShmExecutor executor(std::move(made), 0, "world", true);
  const auto memory = executor.allocate(16 << 20);
  ASSERT_TRUE(memory);
  auto* const data = static_cast<std::byte*>(memory->data());
  sum(executor, data, 0);
  std::thread killer([child] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    kill(child, SIGKILL);
  });
  EXPECT_THROW(
      {
        for (std::uint64_t i = 1;; ++i) sum(executor, data, i);
      },
      host::PeerGone);
  executor.abort("rank 1 is gone");
  executor.quiesce();
  data[(16 << 20) - 1] = std::byte{7};
  EXPECT_FALSE(executor.allocate(1));
  killer.join();
  waitpid(child, nullptr, 0);
  close(go[0]);
  close(go[1]);
}

// Where a rank reads in place, in the middle, until `go_on`: its memory faults there.
struct FaultInTheMiddle {
  static inline std::atomic<bool> is_there, go_on;
  static inline std::byte* page_begin;

  static void wait(int, siginfo_t* fault, void*) {
    const auto* const address = static_cast<const std::byte*>(fault->si_addr);
    if (address < page_begin || address >= page_begin + 4096) std::abort();
    is_there = true;
    while (!go_on) sched_yield();
    mprotect(page_begin, 4096, PROT_READ | PROT_WRITE);
  }
  explicit FaultInTheMiddle(std::byte* page) {
    is_there = go_on = false;
    page_begin = page;
    struct sigaction handler {};
    handler.sa_sigaction = &FaultInTheMiddle::wait;
    handler.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &handler, &before_);
    mprotect(page, 4096, PROT_NONE);
  }
  ~FaultInTheMiddle() { sigaction(SIGSEGV, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

// A rank gives up on another that was stopped while it read its memory, and uses it anew.
TEST(ShmExecutor, WhoReadsMemoryThatItsOwnerHasTakenBackHearsOfIt) {
  constexpr std::int64_t bytes = 512 << 10;
  auto made = std::make_unique<shm::Window>(2);
  auto opened = std::make_unique<shm::Window>(2, made->address());
  made->enter(0);
  opened->enter(1);
  shm::ShmExecutor owner(std::move(made), 0, "world", true);
  shm::ShmExecutor reader(std::move(opened), 1, "world", true);
  const auto broadcast = [&](shm::ShmExecutor& executor, Memory& memory, host::Deadline& deadline) {
    auto* const data = static_cast<std::byte*>(memory.data());
    const Operation operation{
        .kind = OperationKind::broadcast, .input = data, .output = data, .count = bytes};
    executor.run({&operation, 1}, deadline);
  };
  const auto sent = owner.allocate(bytes), received = reader.allocate(bytes);
  ASSERT_TRUE(sent && received);
  const FaultInTheMiddle fault(static_cast<std::byte*>(received->data()) + bytes / 2);
  std::thread late([&] {
    host::Deadline deadline;
    EXPECT_THROW(broadcast(reader, *received, deadline), PeerFailure);
  });
  host::Deadline deadline;
  deadline.set(host::Clock::now() +
               std::chrono::seconds(1) * lockstep::testing::timeout_multiplier);
  EXPECT_THROW(broadcast(owner, *sent, deadline), host::TransferTimeout);
  EXPECT_TRUE(FaultInTheMiddle::is_there);
  owner.abort("rank 1 did not come");
  owner.quiesce();
  std::memset(sent->data(), 7, bytes);
  FaultInTheMiddle::go_on = true;
  late.join();
}

}  // namespace
}  // namespace lockstep::comm
