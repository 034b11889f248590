#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/options.hpp"
#include "cuda_runtime_api.h"
#include "findings.hpp"
#include "memory/device_side.hpp"
#include "memory/pages.hpp"
#include "memory/switched_pages.hpp"

namespace simgpu {
namespace {

using ::testing::ElementsAre;
using testing::Findings;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Why host accesses are not caught in the way that was asked for; null if they are.
const char* missing_way() {
  if (host_watch() == HostWatch::off) return "LOCKSTEP_SIM_HOST_WATCH=off: nothing is caught";
  const char* const wanted = std::getenv("LOCKSTEP_SIM_HOST_WATCH");
  const bool wants_keys = wanted != nullptr && std::string(wanted) == "keys";
  return wants_keys && host_watch() != HostWatch::keys ? "this machine has no protection keys"
                                                       : nullptr;
}

class SimHostAccess : public ::testing::Test {
 protected:
  static constexpr std::size_t bytes = 10000;

  void SetUp() override {
    if (const char* const missing = missing_way()) GTEST_SKIP() << missing;
    ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&device, bytes), cudaSuccess);
    ASSERT_EQ(cudaHostAlloc(&pinned, bytes, cudaHostAllocDefault), cudaSuccess);
    std::memset(pinned, 5, bytes);
    let_host_accesses_through(true);
  }
  void TearDown() override {
    if (missing_way() != nullptr) return;
    leave_device_side();
    let_host_accesses_through(false);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(cudaFree(device), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }
  volatile char* host_view() const { return static_cast<volatile char*>(pinned); }

  Findings findings;
  cudaStream_t stream = nullptr;
  void* device = nullptr;
  void* pinned = nullptr;
};

TEST_F(SimHostAccess, OfDeviceMemoryIsReported) {
  static_cast<volatile char*>(device)[16] = 1;
  EXPECT_THAT(findings.kinds(), ElementsAre(Finding::host_access));
  EXPECT_THAT(findings.text(), HasSubstr("the host writes byte 16 of the block of 10000 bytes"));
}

TEST_F(SimHostAccess, OfDeviceMemoryThatTheDeviceWorkedOnIsReported) {
  ASSERT_EQ(cudaMemsetAsync(device, 7, bytes, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(static_cast<volatile char*>(device)[bytes - 1], 7);
  EXPECT_THAT(findings.kinds(), ElementsAre(Finding::host_access));
}

TEST_F(SimHostAccess, IsReportedWhereAHostFunctionSaysThatTheDeviceIsDone) {
  std::promise<void> done;
  const auto tell = [](void* to) { static_cast<std::promise<void>*>(to)->set_value(); };
  ASSERT_EQ(cudaMemsetAsync(device, 7, bytes, stream), cudaSuccess);
  ASSERT_EQ(cudaLaunchHostFunc(stream, tell, &done), cudaSuccess);
  done.get_future().wait();
  EXPECT_EQ(static_cast<volatile char*>(device)[0], 7);
  EXPECT_THAT(findings.kinds(), ElementsAre(Finding::host_access));
}

TEST_F(SimHostAccess, IsReportedWhileTheDeviceWorksForAnotherStream) {
  constexpr std::size_t many = std::size_t{256} << 20;
  void* other_memory = nullptr;
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaMalloc(&other_memory, many), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(device, 7, bytes, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(other_memory, 8, many, other), cudaSuccess);
  EXPECT_EQ(static_cast<volatile char*>(device)[0], 7);
  EXPECT_THAT(findings.kinds(), ElementsAre(Finding::host_access));
  leave_device_side();
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
  EXPECT_EQ(cudaFree(other_memory), cudaSuccess);
}

TEST_F(SimHostAccess, OfPinnedMemoryThatTheDeviceIsDoneWithUnseenIsARace) {
  ASSERT_EQ(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, stream), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost, stream), cudaSuccess);
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  static_cast<void>(host_view()[0]);
  EXPECT_THAT(findings.kinds(), ElementsAre(Finding::host_race));
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

TEST_F(SimHostAccess, BesideDeviceMemoryThatTheDeviceWorksOnIsFine) {
  std::vector<char> own(bytes);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(cudaMemsetAsync(device, i, bytes, stream), cudaSuccess);
    ASSERT_EQ(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    std::memcpy(own.data(), pinned, bytes);
    ASSERT_EQ(own.back(), i);
  }
  EXPECT_THAT(findings.text(), IsEmpty());
}

// The host opens the page of its own bytes while the device writes to others of that page.
TEST_F(SimHostAccess, BesidePinnedMemoryThatTheDeviceWritesIsFine) {
  ASSERT_EQ(cudaMemsetAsync(device, 7, bytes, stream), cudaSuccess);
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(cudaMemcpyAsync(pinned, device, 64, cudaMemcpyDeviceToHost, stream), cudaSuccess);
    host_view()[2048] = static_cast<char>(i);
  }
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(host_view()[2048], static_cast<char>(1999));
  EXPECT_THAT(findings.text(), IsEmpty());
}

TEST(SimSwitchedPages, AreOpenOnceTheyAreEveryonesAndNotThereOnceForgotten) {
  SwitchedPages& pages = SwitchedPages::instance();
  void* const page =
      mmap(nullptr, 3 * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* const first = static_cast<volatile char*>(page);
  volatile char* const second = first + page_bytes;
  int opener = 0;
  const auto opens = [&](volatile char* address) {
    return pages.open(const_cast<char*>(address), &opener);
  };
  pages.set_owner(page, 3 * page_bytes, Owner::queued_device);
  pages.set_owner(const_cast<char*>(second), page_bytes, Owner::everyone);
  *second = 1;
  EXPECT_TRUE(opens(second));
  EXPECT_TRUE(opens(first));
  *first = 1;
  pages.close(&opener);
  *second = 2;  // still everyone's
  pages.set_owner(page, 3 * page_bytes, Owner::everyone);
  *first = 2;
  EXPECT_TRUE(opens(first));
  pages.forget(page, 3 * page_bytes);
  EXPECT_FALSE(opens(first));
  EXPECT_FALSE(opens(second));
  munmap(page, 3 * page_bytes);
}

TEST_F(SimHostAccess, OfDeviceMemoryByAnyThreadIsReported) {
  std::thread([&] { static_cast<void>(static_cast<volatile char*>(device)[0]); }).join();
  EXPECT_THAT(findings.kinds(), ElementsAre(Finding::host_access));
  EXPECT_THAT(findings.text(), HasSubstr("the host reads"));
}

TEST_F(SimHostAccess, ByTheCLibraryIsReported) {
  std::array<char, 64> own{};
  std::memcpy(own.data(), device, own.size());
  EXPECT_NE(own[0], 0) << "what fresh memory holds";
  EXPECT_THAT(findings.kinds(), ElementsAre(Finding::host_access));
}

TEST_F(SimHostAccess, OfPinnedMemoryBeforeTheCopyIsDoneIsARace) {
  ASSERT_EQ(cudaMemsetAsync(device, 7, bytes, stream), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost, stream), cudaSuccess);
  static_cast<void>(host_view()[9000]);
  EXPECT_THAT(findings.kinds(), ElementsAre(Finding::host_race));
}

TEST_F(SimHostAccess, OverwritingTheSourceOfACopyInFlightIsARace) {
  ASSERT_EQ(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, stream), cudaSuccess);
  host_view()[0] = 1;
  EXPECT_THAT(findings.kinds(), ElementsAre(Finding::host_race));
}

TEST_F(SimHostAccess, OfPinnedMemoryAfterTheHostWaitedIsFine) {
  ASSERT_EQ(cudaMemsetAsync(device, 7, bytes, stream), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(pinned, device, bytes, cudaMemcpyDeviceToHost, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(host_view()[9000], 7);
  host_view()[9000] = 3;
  EXPECT_THAT(findings.text(), IsEmpty());
}

TEST_F(SimHostAccess, BySystemCallsWorksAfterTheHostWaited) {
  ASSERT_EQ(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  EXPECT_EQ(write(ends[1], pinned, 100), 100);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(SimHostAccess, OtherPinnedMemoryStaysOpen) {
  void* other = nullptr;
  ASSERT_EQ(cudaMallocHost(&other, 8), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(device, pinned, bytes, cudaMemcpyHostToDevice, stream), cudaSuccess);
  static_cast<volatile char*>(other)[0] = 1;
  EXPECT_THAT(findings.text(), IsEmpty());
  EXPECT_EQ(cudaFreeHost(other), cudaSuccess);
}

TEST(SimHostAccessDeathTest, EndsTheProcessOtherwise) {
  if (const char* const missing = missing_way()) GTEST_SKIP() << missing;
  void* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 64), cudaSuccess);
  EXPECT_EXIT(static_cast<volatile char*>(device)[0] = 1, ::testing::KilledBySignal(SIGSEGV),
              "the host writes block of 64 bytes");
  EXPECT_EQ(cudaFree(device), cudaSuccess);
}

TEST(SimHostAccessDeathTest, IsCaughtByPagesWhereNoKeyIsLeft) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  unsetenv("LOCKSTEP_SIM_HOST_WATCH");
  const auto touch_without_keys = [] {
    while (pkey_alloc(0, 0) >= 0) {
    }
    void* device = nullptr;
    if (cudaMalloc(&device, 64) != cudaSuccess || host_watch() != HostWatch::pages) std::exit(1);
    static_cast<volatile char*>(device)[0] = 1;
  };
  EXPECT_EXIT(touch_without_keys(), ::testing::KilledBySignal(SIGSEGV),
              "the host writes block of 64 bytes");
}

TEST(SimHostAccessDeathTest, ForeignFaultsGoToTheHandlerThatWasThereBefore) {
  void* device = nullptr;
  ASSERT_EQ(cudaMalloc(&device, 64), cudaSuccess);
  volatile char* nowhere = nullptr;
  EXPECT_EXIT(*nowhere = 1, ::testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EQ(cudaFree(device), cudaSuccess);
}

}  // namespace
}  // namespace simgpu
