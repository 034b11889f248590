#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "kernel_findings.hpp"
#include "kernel_run.hpp"

/// @file
/// What the simulated GPU finds wrong in kernels.

namespace simgpu::test {
namespace {

__global__ void leave_before_barrier(int* out) {
  __shared__ int seen[64];
  if (threadIdx.x < 10) return;
  seen[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = seen[73 - threadIdx.x];
}

// "... will not succeed until reached by all non-exited threads in the block" (CUDA C++ Programming
// Guide, compute capability 7.x): what comes after sees what came before.
TEST(KernelFindings, AreNoneOfABarrierBeforeWhichThreadsLeave) {
  const testing::Findings findings;
  const DeviceArray<int> out(64);
  run(2, 64, 0, leave_before_barrier, out.data());
  EXPECT_EQ(findings.text(), "");
}

__global__ void wait_for_those_that_shuffle() {
  if (threadIdx.x < 10)
    __syncwarp();
  else
    __syncthreads();
}

TEST(KernelFindings, NameThreadsThatNeverReachABarrier) {
  const testing::Findings findings;
  run(2, 64, 0, wait_for_those_that_shuffle);
  expect_finding(findings, Finding::barrier_divergence,
                 {"wait_for_those_that_shuffle", "54 wait at __syncthreads (such as (10,0,0))",
                  "10 wait for lanes of their warp (such as (0,0,0))"});
}

__global__ void shuffle_with_lane_that_left(int* out) {
  if (threadIdx.x == 3) return;
  out[threadIdx.x] = __shfl_xor_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x), 1);
}

TEST(KernelFindings, NameAShuffleWhosePartnerLeft) {
  const testing::Findings findings;
  const DeviceArray<int> out(32);
  run(1, 32, 0, shuffle_with_lane_that_left, out.data());
  expect_finding(findings, Finding::barrier_divergence,
                 {"31 wait for lanes of their warp", "1 have left the kernel (such as (3,0,0))"});
}

__global__ void copy_past_the_end(char* to, const char* from) { memcpy(to, from, 100); }

TEST(KernelFindings, NameACopyThatEndsBehindItsBlock) {
  const DeviceArray<char> from(std::vector<char>(100)), to(96);
  const testing::Findings findings;
  run(1, 1, 0, copy_past_the_end, to.data(), from.data());
  expect_finding(findings, Finding::out_of_bounds, {"copy_past_the_end", "writes"});
}

__global__ void copy_over_each_other(const char* from) {
  __shared__ char rows[16 * 32 + 4];
  memcpy(rows + 16 * threadIdx.x, from + 20 * threadIdx.x, 20);
}

TEST(KernelFindings, NameARaceOfCopiesThatOverlap) {
  std::vector<char> content(640);
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i);
  const DeviceArray<char> from(content);
  const testing::Findings findings;
  run(1, 32, 0, copy_over_each_other, from.data());
  expect_finding(findings, Finding::shared_memory_race, {"copy_over_each_other"});
}

__global__ void shuffle_outside_mask(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xFFFFu, static_cast<int>(threadIdx.x), 20);
}

TEST(KernelFindings, NameAShuffleThatReadsALaneOutsideItsMask) {
  const testing::Findings findings;
  const DeviceArray<int> out(32);
  run(1, 32, 0, shuffle_outside_mask, out.data());
  expect_finding(findings, Finding::barrier_divergence, {"lane 20", "0x0000ffff"});
}

__global__ void sum_of_half_a_warp(float* sum) {
  float value = 1.0f;
  if (threadIdx.x >= 16) return;
  for (unsigned distance = 8; distance > 0; distance /= 2)
    value += __shfl_down_sync(0xFFFFu, value, distance);
  sum[threadIdx.x] = value;
}

// Lanes 8 to 15 read beyond the mask and pass on what nobody uses.
TEST(KernelFindings, AreNoneOfAShuffleDownPastTheLanesThatTakePart) {
  const testing::Findings findings;
  const DeviceArray<float> sum(16);
  run(1, 32, 0, sum_of_half_a_warp, sum.data());
  EXPECT_EQ(findings.text(), "");
  EXPECT_EQ(sum.download()[0], 16.0f);
  EXPECT_TRUE(std::isnan(sum.download()[15]));
}

__global__ void barriers_in_branches(int* out, unsigned first) {
  if (threadIdx.x < first) {
    __syncthreads();
    out[threadIdx.x] = 1;
  } else {
    out[threadIdx.x] = 2;
    __syncthreads();
  }
}

TEST(KernelFindings, NameBothBarriersOfThreadsThatMeetAtTwo) {
  const DeviceArray<int> out(64);
  const testing::Findings findings;
  run(1, 64, 0, barriers_in_branches, out.data(), 64u);
  run(1, 64, 0, barriers_in_branches, out.data(), 0u);
  EXPECT_EQ(findings.text(), "");
  run(1, 64, 0, barriers_in_branches, out.data(), 32u);
  expect_finding(findings, Finding::barrier_divergence,
                 {"thread (32,0,0)", "while thread (0,0,0) waits", "to the same one"});
}

__global__ void store_per_warp(int* out, int difference) {
  __shared__ int sums[2];
  const unsigned lane = threadIdx.x % 32;
  sums[threadIdx.x / 32] = 7 + (lane == 31 ? difference : 0);
  __syncthreads();
  out[threadIdx.x] = sums[1 - threadIdx.x / 32];
}

TEST(KernelFindings, AreNoneOfLanesThatStoreTheSameValueInSharedMemory) {
  const DeviceArray<int> out(64);
  const testing::Findings findings;
  run(2, 64, 0, store_per_warp, out.data(), 0);
  EXPECT_EQ(findings.text(), "");
  run(2, 64, 0, store_per_warp, out.data(), 1);
  expect_finding(
      findings, Finding::shared_memory_race,
      {"thread (31,0,0): writes byte 0 of", "store_per_warp", "which thread (30,0,0) wrote"});
}

__global__ void store_last(int value) {
  int* const last = static_cast<int*>(dynamic_shared_memory());
  last[0] = value + static_cast<int>(threadIdx.x);
}

// Nothing comes after the write that tells what it stored.
TEST(KernelFindings, NameARaceOfTheLastThingThatABlockDoes) {
  const testing::Findings findings;
  run(1, 2, 64, store_last, 1);
  EXPECT_EQ(findings.kinds(), std::vector<Finding>{Finding::shared_memory_race});
}

__global__ void do_nothing() {}

// "A kernel launch will fail if it is issued to a stream that is not associated to the current
// device" (CUDA C++ Programming Guide, stream and event behavior).
TEST(KernelFindings, NameALaunchOnAStreamOfAnotherDevice) {
  const testing::Findings findings;
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  const cudaLaunchConfig_t config{.gridDim = dim3(1),
                                  .blockDim = dim3(32),
                                  .dynamicSmemBytes = 0,
                                  .stream = stream,
                                  .attrs = nullptr,
                                  .numAttrs = 0};
  EXPECT_EQ(cudaLaunchKernelEx(&config, do_nothing), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  expect_finding(findings, Finding::invalid_launch,
                 {"do_nothing", "a stream of device 1 while device 0 is current"});
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

__global__ void no_barrier(int* out) {
  __shared__ int row[64];
  row[threadIdx.x] = static_cast<int>(threadIdx.x);
  out[threadIdx.x] = row[threadIdx.x ^ 32];
}

TEST(KernelFindings, NameBothThreadsWhereABarrierIsMissing) {
  const testing::Findings findings;
  const DeviceArray<int> out(64);
  run(1, 64, 0, no_barrier, out.data());
  bool race = false;
  for (const Report& report : findings.all()) {
    if (report.finding != Finding::shared_memory_race) continue;
    race = true;
    EXPECT_NE(report.text.find("no_barrier"), std::string::npos) << report.text;
    EXPECT_NE(report.text.find("thread (32,0,0)"), std::string::npos) << report.text;
    EXPECT_NE(report.text.find("thread (0,0,0)"), std::string::npos) << report.text;
    EXPECT_NE(report.text.find("row"), std::string::npos) << report.text;
  }
  EXPECT_TRUE(race) << findings.text();
}

__global__ void warp_order(int* out) {
  __shared__ int row[64];
  row[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncwarp();
  out[threadIdx.x] = row[threadIdx.x ^ 1];
}

TEST(KernelFindings, TakeAWarpsCollectiveAsOrderWithinTheWarp) {
  const testing::Findings findings;
  const DeviceArray<int> out(64);
  run(1, 64, 0, warp_order, out.data());
  EXPECT_EQ(findings.text(), "");
}

__global__ void static_index(int* out, int shift) {
  __shared__ int row[16];
  row[threadIdx.x + shift] = 1;
  __syncthreads();
  if (threadIdx.x > 3) out[threadIdx.x] = row[threadIdx.x];
}

TEST(KernelFindings, NameAnIndexPastAStaticSharedArray) {
  const testing::Findings findings;
  const DeviceArray<int> out(16);
  run(1, 16, 0, static_index, out.data(), 3);
  expect_finding(
      findings, Finding::index_bounds,
      {"static_index", "thread (13,0,0)", "index 16 of 'int [16]'", "kernel_findings_test.cu"});
}

__global__ void cast_index(int* out, int shift) {
  alignas(16) __shared__ unsigned char storage[64];
  int* const row = reinterpret_cast<int*>(storage);
  row[threadIdx.x + shift] = 1;
  __syncthreads();
  if (threadIdx.x > 3) out[threadIdx.x] = row[threadIdx.x];
}

TEST(KernelFindings, NameAnIndexPastASharedArrayOfAnotherType) {
  const testing::Findings findings;
  const DeviceArray<int> out(16);
  run(1, 16, 0, cast_index, out.data(), 3);
  expect_finding(findings, Finding::index_bounds,
                 {"cast_index", "thread (13,0,0)", "past the end"});
}

__global__ void dynamic_index(int shift) {
  auto* const row = static_cast<int*>(::simgpu::dynamic_shared_memory());
  row[threadIdx.x + shift] = 1;
}

TEST(KernelFindings, NameAnIndexPastTheDynamicSharedMemory) {
  const testing::Findings findings;
  run(1, 32, 32 * sizeof(int), dynamic_index, 2);
  expect_finding(
      findings, Finding::shared_memory_bounds,
      {"dynamic_index", "thread (30,0,0)", "offset 128 of the 128 bytes of dynamic shared memory"});
}

__global__ void copy(int* out, const int* in, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) out[i] = in[i];
}

TEST(KernelFindings, NameAnAccessOutsideTheBlock) {
  const testing::Findings findings;
  const DeviceArray<int> out(100), in(std::vector<int>(101));
  run(1, 128, 0, copy, out.data(), in.data(), 101);
  expect_finding(findings, Finding::out_of_bounds, {"copy", "thread (100,0,0)", "writes 4 bytes"});
}

TEST(KernelFindings, NameAReadOfMemoryThatNothingWrote) {
  const testing::Findings findings;
  const DeviceArray<int> out(100), in(100);
  run(1, 128, 0, copy, out.data(), in.data(), 100);
  expect_finding(findings, Finding::uninitialized_read,
                 {"copy", "thread (0,0,0)", "reads 4 bytes"});
}

TEST(KernelFindings, NameAPointerToTheHostsMemory) {
  const testing::Findings findings;
  const DeviceArray<int> in(std::vector<int>(100));
  std::vector<int> out(100);
  const StickyError error;
  EXPECT_EQ(run(1, 128, 0, copy, out.data(), in.data(), 100), cudaErrorIllegalAddress);
  expect_finding(findings, Finding::out_of_bounds,
                 {"copy", "thread (0,0,0)", "neither device nor pinned memory"});
}

__global__ void write_after_barrier(int* out, int* elsewhere) {
  out[threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x == 40) *elsewhere = 1;
  __syncthreads();
  out[threadIdx.x] = 2;
}

// cudaErrorIllegalAddress: "any further CUDA work will return the same error".
TEST(KernelFindings, EndTheKernelAndAllThatFollowsWhereNoMemoryIs) {
  const DeviceArray<int> out(64);
  for (const std::uintptr_t nowhere : {std::uintptr_t{64}, std::uintptr_t{0x203F'F000'0000}}) {
    const testing::Findings findings;
    std::vector<int> content(64);
    {
      const StickyError error;
      EXPECT_EQ(run(2, 64, 0, write_after_barrier, out.data(), reinterpret_cast<int*>(nowhere)),
                cudaErrorIllegalAddress);
      EXPECT_EQ(cudaMemset(out.data(), 0, 4), cudaErrorIllegalAddress);
      EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
    }
    expect_finding(findings, Finding::out_of_bounds,
                   {"write_after_barrier", "thread (40,0,0)", "writes 4 bytes",
                    "all later calls with cudaErrorIllegalAddress"});
    EXPECT_EQ(out.download()[63], 1);
    // The threads that waited are gone; others run as ever.
    EXPECT_EQ(run(2, 64, 0, write_after_barrier, out.data(), out.data() + 40), cudaSuccess);
    EXPECT_EQ(out.download()[63], 2);
  }
}

// Watched or not (Kernels.OfTestsRunUnwatched): the processor refuses what nothing looked at. The
// last address is one that no memory can have.
TEST(KernelFaults, EndTheKernelAndAllThatFollowsByName) {
  const DeviceArray<int> out(64);
  for (const std::uintptr_t nowhere : {std::uintptr_t{64}, std::uintptr_t{0x203F'F000'0000},
                                       std::uintptr_t{0x1234'0000'0000'0000}}) {
    const testing::Findings findings;
    {
      const StickyError error;
      EXPECT_EQ(run(2, 64, 0, write_after_barrier, out.data(), reinterpret_cast<int*>(nowhere)),
                cudaErrorIllegalAddress);
      EXPECT_EQ(cudaMemset(out.data(), 0, 4), cudaErrorIllegalAddress);
    }
    expect_finding(findings, Finding::out_of_bounds,
                   {"write_after_barrier", "thread (40,0,0)", "kernel_findings_test.cu",
                    "all later calls with cudaErrorIllegalAddress"});
    EXPECT_EQ(run(2, 64, 0, write_after_barrier, out.data(), out.data() + 40), cudaSuccess);
    EXPECT_EQ(out.download()[63], 2);
  }
}

__device__ int descend(const int* in, int levels) {
  __shared__ int depth[64];
  depth[threadIdx.x] = levels;
  int own[64];
  for (int i = 0; i < 64; ++i) own[i] = in[i % 4] + i;
  return levels == 0 ? own[0] : descend(in, levels - 1) + own[depth[threadIdx.x] % 64];
}

__global__ void descend_behind_barrier(int* out, const int* in, int levels) {
  __syncthreads();
  const int sum = descend(in, threadIdx.x == 40 ? levels : 3);
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

__global__ void fill_large_array(int* out, const int* in, int count) {
  int own[100'000];
  for (int i = 0; i < count; ++i) own[i * 1000] = in[i % 4];
  if (threadIdx.x == 1) out[0] = own[(count - 1) * 1000];
}

// cudaErrorHardwareStackError: "possibly due to stack corruption or exceeding the stack size limit
// [...] any further CUDA work will return the same error". Watched or not.
TEST(KernelFaults, NameAStackThatOverflows) {
  const DeviceArray<int> out(4), in(std::vector<int>(4));
  const auto expect_overflow = [&](const auto& launch, const char* name, const char* thread) {
    const testing::Findings findings;
    {
      const StickyError error;
      EXPECT_EQ(launch(), cudaErrorHardwareStackError);
      EXPECT_EQ(cudaMemset(out.data(), 0, 4), cudaErrorHardwareStackError);
    }
    expect_finding(findings, Finding::stack_overflow,
                   {name, thread, "its stack of 252 KiB", "kernel_findings_test.cu",
                    "all later calls with cudaErrorHardwareStackError"});
  };
  for (int again = 0; again < 2; ++again) {
    expect_overflow(
        [&] { return run(2, 64, 0, descend_behind_barrier, out.data(), in.data(), 1 << 20); },
        "descend_behind_barrier", "thread (40,0,0)");
    expect_overflow([&] { return run(1, 2, 0, fill_large_array, out.data(), in.data(), 8); },
                    "fill_large_array", "thread (0,0,0)");
  }
  const testing::Findings findings;
  EXPECT_EQ(run(2, 64, 0, descend_behind_barrier, out.data(), in.data(), 100), cudaSuccess);
  EXPECT_EQ(findings.text(), "");
}

__device__ int descend_and_print(const int* in, int levels) {
  printf("%.0d", 0);  // nothing
  return levels == 0 ? in[0] : descend_and_print(in, levels - 1) + in[levels % 4];
}

__global__ void print_on_the_way(int* out, const int* in, int levels) {
  out[0] = descend_and_print(in, levels);
}

// The C library holds the lock of the output there: nobody could print any more.
TEST(KernelFaults, EndTheProcessWhereAStackOverflowsInPrintf) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto overflow = [] {
    const DeviceArray<int> out(4), in(std::vector<int>(4));
    run(1, 1, 0, print_on_the_way, out.data(), in.data(), 1 << 20);
  };
  EXPECT_EXIT(overflow(), ::testing::ExitedWithCode(EXIT_FAILURE),
              "print_on_the_way.*(\n.*)*the process ends here, within a function of the C library");
}

// What is told of a place that launches a kernel again and again is one report, whichever block
// comes first: the same text is not printed again.
TEST(KernelFindings, AreOneReportForAllLaunchesOfAPlace) {
  const DeviceArray<int> out(4), in(std::vector<int>(32));
  std::vector<std::string> texts;
  for (int launch = 0; launch < 50; ++launch) {
    const testing::Findings findings;
    run(4, 8, 0, copy, out.data(), in.data(), 32);
    ASSERT_EQ(findings.kinds(), std::vector<Finding>{Finding::out_of_bounds});
    texts.push_back(findings.text());
  }
  EXPECT_EQ(std::set<std::string>(texts.begin(), texts.end()).size(), 1u);
}

__global__ void index_own(int* out, int shift) {
  int own[4] = {1, 2, 3, 4};
  for (int i = 0; i < 4; ++i) own[i] += static_cast<int>(threadIdx.x);
  out[threadIdx.x] = own[threadIdx.x + shift];
}

TEST(KernelFindings, CallAThreadsOwnArrayNoSharedMemory) {
  const DeviceArray<int> out(4);
  const testing::Findings findings;
  run(1, 4, 0, index_own, out.data(), 1);
  expect_finding(findings, Finding::index_bounds,
                 {"index_own", "thread (3,0,0)", "index 4 of 'int [4]'"});
  EXPECT_EQ(findings.text().find("shared"), std::string::npos) << findings.text();
}

TEST(KernelFindings, NameMemoryOfAnotherDeviceWithoutPeerAccess) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  const DeviceArray<int> in(std::vector<int>(100));
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  const DeviceArray<int> out(100);
  const testing::Findings findings;
  {
    const StickyError error;
    EXPECT_EQ(run(1, 128, 0, copy, out.data(), in.data(), 100), cudaErrorIllegalAddress);
  }
  expect_finding(findings, Finding::peer_access,
                 {"copy", "reads 4 bytes", "device 0 has no access to", "of device 1"});
  ASSERT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess);
  EXPECT_EQ(run(1, 128, 0, copy, out.data(), in.data(), 100), cudaSuccess);
  EXPECT_EQ(cudaDeviceDisablePeerAccess(1), cudaSuccess);
  EXPECT_EQ(findings.all().size(), 1u) << findings.text();
}

TEST(KernelFindings, RefuseLaunchesPastTheDevicesLimits) {
  const testing::Findings findings;
  const auto refused = [&](dim3 grid, dim3 block, std::size_t shared) {
    return run(grid, block, shared, dynamic_index, 0);
  };
  EXPECT_EQ(refused(0, 32, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(refused(1, 1025, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(refused(dim3(1, 65536), 32, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(refused(1, dim3(1, 1, 65), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(refused(1, 32, 48 * 1024 + 1), cudaErrorInvalidValue);
  for (const Report& report : findings.all())
    EXPECT_EQ(report.finding, Finding::invalid_launch) << report.text;
  EXPECT_EQ(findings.all().size(), 5u);

  const auto* const kernel = reinterpret_cast<const void*>(&dynamic_index);
  EXPECT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 * 1024),
            cudaSuccess);
  EXPECT_EQ(refused(1, 32, 64 * 1024), cudaSuccess);
}

__global__ void exchange_behind_a_shuffle(int* out) {
  __shared__ int row[32];
  row[threadIdx.x] = static_cast<int>(threadIdx.x);
  const int other = __shfl_xor_sync(0xFFFFFFFFu, 1, 1);  // orders no memory
  out[threadIdx.x] = row[threadIdx.x ^ 1] + other;
}

TEST(KernelFindings, NameSharedMemoryThatOnlyAShuffleOrders) {
  const testing::Findings findings;
  const DeviceArray<int> out(32);
  run(1, 32, 0, exchange_behind_a_shuffle, out.data());
  EXPECT_FALSE(findings.all().empty());
}

}  // namespace
}  // namespace simgpu::test
