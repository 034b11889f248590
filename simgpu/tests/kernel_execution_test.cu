#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "findings.hpp"
#include "kernel_run.hpp"

/// @file
/// What kernels compute.

namespace simgpu::test {
namespace {

__global__ void write_places(uint3* blocks, uint3* threads, dim3* extents) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned at = block * blockDim.x * blockDim.y * blockDim.z + thread;
  blocks[at] = blockIdx;
  threads[at] = threadIdx;
  if (at == 0) {
    extents[0] = gridDim;
    extents[1] = blockDim;
  }
}

TEST(Kernels, SeeTheirPlaceInTheLaunch) {
  const dim3 grid(3, 2, 2), block(4, 3, 2);
  DeviceArray<uint3> blocks(12 * 24), threads(12 * 24);
  DeviceArray<dim3> extents(2);
  ASSERT_EQ(run(grid, block, 0, write_places, blocks.data(), threads.data(), extents.data()),
            cudaSuccess);
  const auto block_of = blocks.download();
  const auto thread_of = threads.download();
  for (unsigned i = 0; i < 12 * 24; ++i) {
    EXPECT_EQ(block_of[i].x + 3 * (block_of[i].y + 2 * block_of[i].z), i / 24);
    EXPECT_EQ(thread_of[i].x + 4 * (thread_of[i].y + 3 * thread_of[i].z), i % 24);
  }
  EXPECT_EQ(extents.download()[0].z, 2u);
  EXPECT_EQ(extents.download()[1].y, 3u);
}

__global__ void reverse_blocks(int* data) {
  __shared__ int row[128];
  const unsigned first = blockIdx.x * blockDim.x;
  row[threadIdx.x] = data[first + threadIdx.x];
  __syncthreads();
  const int mine = row[blockDim.x - 1 - threadIdx.x];
  __syncthreads();
  row[threadIdx.x] = mine;
  __syncthreads();
  data[first + threadIdx.x] = row[threadIdx.x];
}

TEST(Kernels, MeetAtBarriers) {
  const testing::Findings findings;
  std::vector<int> content(128 * 50);
  std::iota(content.begin(), content.end(), 0);
  const DeviceArray<int> data(content);
  ASSERT_EQ(run(50, 128, 0, reverse_blocks, data.data()), cudaSuccess);
  for (std::size_t at = 0; at < content.size(); at += 128)
    std::reverse(content.begin() + static_cast<long>(at),
                 content.begin() + static_cast<long>(at) + 128);
  EXPECT_EQ(data.download(), content);
  EXPECT_EQ(findings.text(), "");
}

struct Row {
  float* data;
  int count;
};

__global__ void scale_rows(const Row* rows, float factor) {
  const Row row = rows[blockIdx.x];
  for (int i = static_cast<int>(threadIdx.x); i < row.count; i += static_cast<int>(blockDim.x))
    row.data[i] *= factor;
}

// As of nodes, and of lists of arrays.
TEST(Kernels, FollowPointersThatLieInTheirMemory) {
  const testing::Findings findings;
  const DeviceArray<float> first(std::vector<float>{1, 2, 3}), second(std::vector<float>{4});
  const DeviceArray<Row> rows(std::vector<Row>{{first.data(), 3}, {second.data(), 1}});
  ASSERT_EQ(run(2, 32, 0, scale_rows, rows.data(), 2.0f), cudaSuccess);
  EXPECT_EQ(first.download(), (std::vector<float>{2, 4, 6}));
  EXPECT_EQ(second.download(), (std::vector<float>{8}));
  EXPECT_EQ(findings.text(), "");
}

struct Triple {
  float x, y, z;
};

__global__ void copy_bytes(Triple* to, const Triple* from, int* flags) {
  __shared__ Triple rows[32];
  memset(flags + 8 * threadIdx.x, 0, 8 * sizeof(int));
  std::memcpy(&rows[threadIdx.x], from + threadIdx.x, sizeof(Triple));
  __syncthreads();
  memmove(to + threadIdx.x, &rows[31 - threadIdx.x], sizeof(Triple));
  for (int i = 0; i < 8; ++i) flags[8 * threadIdx.x + i] += i;
}

TEST(Kernels, CopyBytesOfAnySize) {
  const testing::Findings findings;
  std::vector<Triple> content(32);
  for (int i = 0; i < 32; ++i) content[i] = {1.0f * i, 2.0f * i, 3.0f * i};
  const DeviceArray<Triple> from(content), to(32);
  const DeviceArray<int> flags(256);
  ASSERT_EQ(run(1, 32, 0, copy_bytes, to.data(), from.data(), flags.data()), cudaSuccess);
  const auto copied = to.download();
  for (int i = 0; i < 32; ++i) EXPECT_EQ(copied[i].z, 3.0f * (31 - i));
  EXPECT_EQ(flags.download()[15], 7);
  EXPECT_EQ(findings.text(), "");
}

__global__ void dynamic_sum(float* out, const float* in) {
  auto* const row = static_cast<float*>(::simgpu::dynamic_shared_memory());
  row[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) row[threadIdx.x] += row[threadIdx.x + half];
  }
  if (threadIdx.x == 0) out[blockIdx.x] = row[0];
}

TEST(Kernels, ReduceInDynamicSharedMemory) {
  const testing::Findings findings;
  const DeviceArray<float> in(std::vector<float>(1024, 2.0f));
  const DeviceArray<float> out(4);
  ASSERT_EQ(run(4, 256, 256 * sizeof(float), dynamic_sum, out.data(),
                static_cast<const float*>(in.data())),
            cudaSuccess);
  EXPECT_EQ(out.download(), std::vector<float>(4, 512.0f));
  EXPECT_EQ(findings.text(), "");
}

__global__ void shuffles(int* out) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const unsigned all = 0xFFFFFFFFu;
  int* const own = out + threadIdx.x * 6;
  own[0] = __shfl_xor_sync(all, lane, 5);
  own[1] = __shfl_up_sync(all, lane, 3);
  own[2] = __shfl_down_sync(all, lane, 3, 16);
  own[3] = __shfl_sync(all, lane, 7);
  own[4] = __shfl_sync(all, lane, 9, 8);
  own[5] = static_cast<int>(__shfl_xor_sync(all, static_cast<double>(lane), 1));
}

TEST(Kernels, ShuffleAsTheDocumentationSays) {
  const DeviceArray<int> out(64 * 6);
  ASSERT_EQ(run(1, 64, 0, shuffles, out.data()), cudaSuccess);
  const auto of = out.download();
  for (int thread = 0; thread < 64; ++thread) {
    const int lane = thread % 32;
    const int* const own = of.data() + thread * 6;
    EXPECT_EQ(own[0], lane ^ 5);
    EXPECT_EQ(own[1], lane < 3 ? lane : lane - 3);
    EXPECT_EQ(own[2], lane % 16 > 12 ? lane : lane + 3);
    EXPECT_EQ(own[3], 7);
    EXPECT_EQ(own[4], lane / 8 * 8 + 1);
    EXPECT_EQ(own[5], lane ^ 1);
  }
}

__global__ void votes(unsigned* out) {
  const unsigned all = 0xFFFFFFFFu;
  const unsigned lane = threadIdx.x % 32;
  unsigned own[5] = {__ballot_sync(all, lane % 3 == 0), 0, 0, 0, 0};
  own[1] = static_cast<unsigned>(__any_sync(all, lane == 31) * 2 + __all_sync(all, lane < 31));
  own[2] = static_cast<unsigned>(__syncthreads_count(threadIdx.x < 10));
  own[3] = static_cast<unsigned>(__syncthreads_or(threadIdx.x == 63) * 2 +
                                 __syncthreads_and(threadIdx.x < 63));
  if (lane < 16) own[4] = __ballot_sync(0xFFFFu, lane & 1);
  for (int i = 0; i < 5; ++i) out[threadIdx.x * 5 + i] = own[i];
}

TEST(Kernels, Vote) {
  const DeviceArray<unsigned> out(64 * 5);
  ASSERT_EQ(run(1, 64, 0, votes, out.data()), cudaSuccess);
  const auto of = out.download();
  for (int thread = 0; thread < 64; ++thread) {
    const unsigned* const own = of.data() + thread * 5;
    EXPECT_EQ(own[0], 0x49249249u);
    EXPECT_EQ(own[1], 2u);
    EXPECT_EQ(own[2], 10u);
    EXPECT_EQ(own[3], 2u);
    EXPECT_EQ(own[4], thread % 32 < 16 ? 0xAAAAu : 0u);
  }
}

__global__ void count_atomically(int* counters, float* sum, unsigned long long* highest) {
  const int thread = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(&counters[0], 1);
  atomicSub(&counters[1], 2);
  atomicMin(&counters[2], -thread);
  atomicOr(&counters[3], 1 << thread % 8);
  if (atomicCAS(&counters[4], 0, 7) == 0) atomicExch(&counters[5], 3);
  atomicAdd(sum, 0.5f);
  atomicMax(highest, static_cast<unsigned long long>(thread));
}

TEST(Kernels, ChangeMemoryAtomically) {
  const testing::Findings findings;
  const DeviceArray<int> counters(std::vector<int>(6));
  const DeviceArray<float> sum(std::vector<float>(1));
  const DeviceArray<unsigned long long> highest(std::vector<unsigned long long>(1));
  ASSERT_EQ(run(10, 100, 0, count_atomically, counters.data(), sum.data(), highest.data()),
            cudaSuccess);
  EXPECT_EQ(counters.download(), (std::vector<int>{1000, -2000, -999, 255, 7, 3}));
  EXPECT_EQ(sum.download()[0], 500.0f);
  EXPECT_EQ(highest.download()[0], 999u);
  EXPECT_EQ(findings.text(), "");
}

__global__ void leave_or_wait(int* out) {
  if (threadIdx.x >= 32) return;
  for (int round = 0; round < 100; ++round) __syncwarp();
  out[threadIdx.x] = __popc(__activemask());
  __syncwarp();  // no lane leaves before all have asked
}

TEST(Kernels, LetWarpsLeaveOnTheirOwn) {
  const testing::Findings findings;
  const DeviceArray<int> out(32);
  ASSERT_EQ(run(1, 96, 0, leave_or_wait, out.data()), cudaSuccess);
  EXPECT_EQ(out.download(), std::vector<int>(32, 32));
  EXPECT_EQ(findings.text(), "");
}

__global__ void note_order(int* order, int* next) { order[atomicAdd(next, 1)] = blockIdx.x; }

TEST(Kernels, RunTheirBlocksInShuffledOrder) {
  const DeviceArray<int> order(1000), next(std::vector<int>(1));
  ASSERT_EQ(run(1000, 1, 0, note_order, order.data(), next.data()), cudaSuccess);
  auto ran = order.download();
  EXPECT_FALSE(std::is_sorted(ran.begin(), ran.end()));
  std::sort(ran.begin(), ran.end());
  std::vector<int> all(1000);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(ran, all);
}

__global__ void count_in_branches(int* counters, int* lanes) {
  const int thread = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (thread % 3 == 0) {
    const unsigned together = __activemask();
    const int leader = __ffs(static_cast<int>(together)) - 1;
    if (static_cast<int>(threadIdx.x % 32) == leader) atomicAdd(&counters[0], __popc(together));
    __syncwarp(together);
  } else {
    lanes[thread] = __popc(__activemask());
  }
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(&counters[1], 1);
}

// Aggregated atomics: those of one branch, and not all that have not left.
TEST(Kernels, TellWhichLanesAreInABranchTogether) {
  const testing::Findings findings;
  const DeviceArray<int> counters(std::vector<int>(2)), lanes(std::vector<int>(192));
  ASSERT_EQ(run(2, 96, 0, count_in_branches, counters.data(), lanes.data()), cudaSuccess);
  EXPECT_EQ(counters.download(), (std::vector<int>{64, 2}));
  int sum = 0;
  for (int i = 0; i < 32; ++i) sum += i % 3 == 0 ? 0 : lanes.download()[i] == 21;
  EXPECT_EQ(sum, 21);
  EXPECT_EQ(findings.text(), "");
}

// As the documents of CUDA say, where C++ leaves it open or rounds twice.
TEST(Intrinsics, ConvertAndCompareAsAGpu) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinite = HUGE_VALF;
  EXPECT_EQ(max(nan, 0.0f), 0.0f);
  EXPECT_EQ(min(1.0f, nan), 1.0f);
  EXPECT_EQ(max(3, 2u), 3u);
  EXPECT_EQ(__float2int_rz(3e9f), 2147483647);
  EXPECT_EQ(__float2int_rn(-3e9f), -2147483647 - 1);
  EXPECT_EQ(__float2int_rn(nan), 0);
  EXPECT_EQ(__float2uint_rz(-1.0f), 0u);
  EXPECT_EQ(__half2int_rn(__half(infinite)), 2147483647);
  EXPECT_FALSE(__hne(__half(nan), __half(1.0f)));
  EXPECT_FALSE(__hne(__nv_bfloat16(1.0f), __nv_bfloat16(1.0f)));
  EXPECT_TRUE(std::isnan(__powf(-2.0f, 2.0f)));
}

TEST(Intrinsics, RoundOnce) {
  EXPECT_EQ(float(__double2half(1 + 1.0 / 2048 + 1e-12)), 1 + 1.0f / 1024);
  EXPECT_EQ(float(__double2bfloat16(1 + 1.0 / 256 + 1e-12)), 1 + 1.0f / 128);
  EXPECT_EQ(float(__int2bfloat16_rn((1 << 24) + (1 << 16) + 1)), 16908288.0f);
  EXPECT_EQ(float(__hfma(__half(1.5f), __half(683.0f / 512), __half(0x1p-24f))), 2 + 1.0f / 512);
  EXPECT_EQ(float(__hfma(__nv_bfloat16(7.0f), __nv_bfloat16(37.0f), __nv_bfloat16(-0x1p-20f))),
            258.0f);
}

TEST(Intrinsics, MoveBits) {
  EXPECT_EQ(__brevll(1), 1ull << 63);
  EXPECT_EQ(__umul64hi(1ull << 63, 6), 3ull);
  EXPECT_EQ(__mulhi(-1, 5), -1);
  EXPECT_EQ(__funnelshift_l(0x80000000u, 1u, 1), 3u);
  EXPECT_EQ(__funnelshift_r(2u, 1u, 1), 0x80000001u);
  EXPECT_EQ(__byte_perm(0x33221100u, 0x77665544u, 0x7250u), 0x77225500u);
}

}  // namespace
}  // namespace simgpu::test
