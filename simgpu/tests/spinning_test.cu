#include "findings.hpp"
#include "kernel_run.hpp"

/// @file
/// Threads that wait for others by looking at memory again and again.

namespace simgpu::test {
namespace {

using Unsigneds = std::vector<unsigned>;

__global__ void take_turns(unsigned* turn, unsigned* order) {
  __shared__ unsigned taken;
  if (threadIdx.x == 0) taken = 0;
  __syncthreads();
  while (*static_cast<volatile unsigned*>(turn) != blockDim.x - 1 - threadIdx.x) {
  }
  order[threadIdx.x] = atomicAdd(&taken, 1);
  __threadfence();
  atomicAdd(turn, 1);
}

TEST(Spinning, LetsOtherThreadsOfABlockRun) {
  const testing::Findings findings;
  const DeviceArray<unsigned> turn(Unsigneds{0}), order(64);
  EXPECT_EQ(run(1, 64, 0, take_turns, turn.data(), order.data()), cudaSuccess);
  EXPECT_EQ(findings.text(), "");
  EXPECT_EQ(order.download()[63], 0u);
  EXPECT_EQ(order.download()[0], 63u);
}

__global__ void count_under_lock(int* lock, int* count) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
  __threadfence();
  *count += 1;
  __threadfence();
  atomicExch(lock, 0);
}

TEST(Spinning, TakesLocksOfAllThreads) {
  const testing::Findings findings;
  const DeviceArray<int> lock(std::vector<int>{0}), count(std::vector<int>{0});
  EXPECT_EQ(run(16, 64, 0, count_under_lock, lock.data(), count.data()), cudaSuccess);
  EXPECT_EQ(count.download()[0], 16 * 64);
  EXPECT_EQ(findings.text(), "");
}

/// Waits until `goal` blocks have come here.
__device__ void meet(unsigned* arrivals, unsigned goal, bool fenced) {
  __syncthreads();
  if (threadIdx.x == 0) {
    if (fenced) __threadfence();
    atomicAdd(arrivals, 1u);
    while (*static_cast<volatile unsigned*>(arrivals) < goal) {
    }
    __threadfence();
  }
  __syncthreads();
}

/// Each block hands its values on to the next one, in several rounds, through memory of the device;
/// what it keeps lies in its shared memory.
__global__ void pass_around(unsigned* arrivals, int* rows, int* out, bool fenced) {
  int* const dynamic = static_cast<int*>(dynamic_shared_memory());
  __shared__ int fixed[32];
  const unsigned thread = threadIdx.x, blocks = gridDim.x;
  fixed[thread] = static_cast<int>(blockIdx.x * 100 + thread);
  dynamic[thread] = 0;
  for (unsigned round = 0; round < 3; ++round) {
    rows[blockIdx.x * 32 + thread] = fixed[thread];
    meet(arrivals, (2 * round + 1) * blocks, fenced);
    fixed[thread] = rows[(blockIdx.x + 1) % blocks * 32 + 31 - thread];
    dynamic[31 - thread] += 1;
    meet(arrivals, (2 * round + 2) * blocks, fenced);
  }
  out[blockIdx.x * 32 + thread] = fixed[thread] + 1000 * dynamic[thread];
}

TEST(Spinning, LetsBlocksMeet) {
  const testing::Findings findings;
  const DeviceArray<unsigned> arrivals(Unsigneds{0});
  const DeviceArray<int> rows(8 * 32), out(8 * 32);
  EXPECT_EQ(
      run(8, 32, 32 * sizeof(int), pass_around, arrivals.data(), rows.data(), out.data(), true),
      cudaSuccess);
  EXPECT_EQ(findings.text(), "");
  const std::vector<int> result = out.download();
  EXPECT_EQ(result[2 * 32 + 7], 3000 + 500 + 24);
  EXPECT_EQ(result[7 * 32], 3000 + 200 + 31);
}

TEST(Spinning, FindsAMissingFenceBetweenBlocksThatMeet) {
  const testing::Findings findings;
  const DeviceArray<unsigned> arrivals(Unsigneds{0});
  const DeviceArray<int> rows(8 * 32), out(8 * 32);
  run(8, 32, 32 * sizeof(int), pass_around, arrivals.data(), rows.data(), out.data(), false);
  EXPECT_TRUE(findings.only(Finding::global_memory_race, "missing fence")) << findings.text();
}

__global__ void wait_for(unsigned* flag, bool is_set_after) {
  if (threadIdx.x == 0)
    while (*static_cast<volatile unsigned*>(flag) == 0) {
    }
  __syncthreads();
  if (is_set_after && threadIdx.x == 1) *static_cast<volatile unsigned*>(flag) = 1;
}

TEST(Spinning, IsToldWhereNoThreadCanEndIt) {
  const testing::Findings findings;
  const StickyError sticky;
  const DeviceArray<unsigned> flag(Unsigneds{0});
  const int line = __LINE__ - 10;
  EXPECT_EQ(run(2, 32, 0, wait_for, flag.data(), true), cudaErrorLaunchTimeout);
  EXPECT_TRUE(findings.only(Finding::endless_wait, "kernel wait_for, block (")) << findings.text();
  for (const std::string& part :
       {std::string("thread (0,0,0): waits for 4 bytes to change"),
        "spinning_test.cu:" + std::to_string(line), std::string("block of 4 bytes at")})
    EXPECT_NE(findings.text().find(part), std::string::npos) << part << findings.text();
}

__global__ void wait_by_atomics(unsigned* flag) {
  while (atomicAdd(flag, 0) == 0) {
  }
}

TEST(Spinning, ByAtomicsIsToldWithTheLineOfTheProgram) {
  const testing::Findings findings;
  const StickyError sticky;
  const DeviceArray<unsigned> flag(Unsigneds{0});
  const int line = __LINE__ - 8;
  EXPECT_EQ(run(1, 32, 0, wait_by_atomics, flag.data()), cudaErrorLaunchTimeout);
  EXPECT_TRUE(findings.only(Finding::endless_wait, "spinning_test.cu:" + std::to_string(line)))
      << findings.text();
}

TEST(Spinning, IsToldOfBlocksThatDoNotFitAtOnce) {
  const testing::Findings findings;
  const StickyError sticky;
  const DeviceArray<unsigned> arrivals(Unsigneds{0});
  const DeviceArray<int> rows(140 * 32), out(140 * 32);
  EXPECT_EQ(cudaFuncSetAttribute(reinterpret_cast<const void*>(pass_around),
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024),
            cudaSuccess);
  EXPECT_EQ(run(140, 32, 200 * 1024, pass_around, arrivals.data(), rows.data(), out.data(), true),
            cudaErrorLaunchTimeout);
  EXPECT_TRUE(findings.only(Finding::endless_wait,
                            "8 of the launch's 140 blocks have not begun: the device holds no more "
                            "than the 132 that wait"))
      << findings.text();
}

__global__ void signal_behind_a_vote(int* flag, int* out) {
  if (threadIdx.x < 16) {
    const unsigned together = __activemask();
    out[threadIdx.x] = __popc(together);
    __threadfence();
    if (threadIdx.x == 0) atomicExch(flag, 1);
  } else {
    while (atomicAdd(flag, 0) == 0) {
    }
    out[threadIdx.x] = 1;
  }
}

// Who asks for the lanes beside it does not keep others waiting.
TEST(Spinning, WaitsForLanesThatAskWhichAreBesideThem) {
  const testing::Findings findings;
  const DeviceArray<int> flag(std::vector<int>(1)), out(std::vector<int>(32));
  ASSERT_EQ(run(1, 32, 0, signal_behind_a_vote, flag.data(), out.data()), cudaSuccess);
  EXPECT_EQ(out.download()[3], 16);
  EXPECT_EQ(out.download()[20], 1);
  EXPECT_EQ(findings.text(), "");
}

}  // namespace
}  // namespace simgpu::test
