#include <chrono>
#include <filesystem>
#include <thread>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/bootstrap/bootstraps.hpp"
#include "lockstep/autograd/ops.hpp"
#include "lockstep/io/atomic_file.hpp"
#include "lockstep/memory/allocator.hpp"
#include "lockstep/observe/log.hpp"
#include "lockstep/tensor/factories.hpp"
#include "memory/upstream.hpp"
#include "simgpu/simgpu.hpp"
#include "support/process.hpp"
#include "support/temporary_folder.hpp"
#include "support/timeout_multiplier.hpp"

// What users of lockstep see when a call of the CUDA libraries fails. Injected: a real GPU rarely
// does this on request.

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr TensorOptions on_gpu{DType::f32, cuda(0)};

class GpuFailures : public ::testing::Test {
 protected:
  void TearDown() override { simgpu::clear_faults(); }
};

TEST_F(GpuFailures, OfAProductNameTheCallAndSayWhy) {
  const Tensor a = ones({4, 4}, on_gpu);
  simgpu::inject("cublasLtMatmul:1:13");
  EXPECT_THAT([&] { matmul(a, a); },
              ThrowsMessage<CudaError>(AllOf(HasSubstr("cublasLtMatmul"), HasSubstr("13"),
                                             HasSubstr("failed to execute"))));
  EXPECT_EQ(sum(matmul(a, a)).item(), 64.0);
}

TEST_F(GpuFailures, OfALaunchNameTheCallAndSayWhy) {
  const Tensor a = ones({4}, on_gpu);
  simgpu::inject("cudaLaunchKernelExC:1:701");
  EXPECT_THAT([&] { exp(a); },
              ThrowsMessage<CudaError>(AllOf(HasSubstr("cudaLaunchKernelEx"), HasSubstr("701"),
                                             HasSubstr("resources"))));
  EXPECT_EQ(sum(a + a).item(), 8.0);
}

TEST_F(GpuFailures, OfAnAllocationAreTriedAgainOnceTheCacheIsEmpty) {
  Allocator& pool = device_allocator(cuda(0));
  (void)ones({1 << 22}, on_gpu);  // leaves a free segment behind
  const PoolStatistics before = pool.statistics();
  simgpu::inject("cudaMalloc:1:2");
  EXPECT_EQ(sum(ones({1 << 23}, on_gpu)).item(), 1 << 23);
  EXPECT_EQ(pool.statistics().out_of_memory_retries, before.out_of_memory_retries + 1);
  EXPECT_GT(pool.statistics().upstream_frees, before.upstream_frees);
}

TEST_F(GpuFailures, OfMemoryNameTheRequestAndLeaveTheDeviceUsable) {
  simgpu::inject("out-of-memory:100000000");
  EXPECT_THAT([] { ones({1 << 26}, on_gpu); },
              ThrowsMessage<OutOfMemory>(AllOf(HasSubstr("cuda:0"), HasSubstr("asked for 2684"))));
  EXPECT_EQ(sum(ones({1 << 20}, on_gpu)).item(), 1 << 20);
}

TEST_F(GpuFailures, OfPinnedMemoryAreNullOnlyWhereThereIsNoMore) {
  PinnedUpstream pinned;
  simgpu::inject("cudaHostAlloc:1:2;cudaHostAlloc:2:46");
  EXPECT_EQ(pinned.allocate(4096), nullptr);
  EXPECT_THAT([&] { pinned.allocate(4096); },
              ThrowsMessage<CudaError>(AllOf(HasSubstr("cudaHostAlloc"), HasSubstr("46"))));
}

comm::CommunicatorPtr one_rank() {
  const auto bootstrap = comm::make_single_bootstrap();
  return comm::make_communicator(*bootstrap, cuda(0), {});
}

TEST_F(GpuFailures, OfNcclsUniqueIdAreToldByRankZero) {
  simgpu::inject("ncclGetUniqueId:1:2");
  EXPECT_THAT([] { one_rank(); },
              ThrowsMessage<Unsupported>(HasSubstr("rank 0 got no unique id from NCCL")));
}

TEST_F(GpuFailures, OfACollectiveNameItAndSayWhy) {
  const auto group = one_rank();
  const Tensor x = ones({8}, on_gpu), all = empty({8}, on_gpu);  // one rank copies it, too
  simgpu::inject("ncclAllGather:1:3");
  try {
    group->all_gather({x.data_ptr(), 8, DType::f32}, {all.data_ptr(), 8, DType::f32}).synchronize();
    FAIL() << "no error";
  } catch (const NcclError& error) {
    EXPECT_THAT(error.what(), HasSubstr("all_gather failed with status 3 (internal error"));
    EXPECT_EQ(testing::occurrences(error.what(), "failed"), 1u) << error.what();
  }
}

// A call of a library that a thread in the background makes fails: the group tells what it met.
void wait_until_failed(const Communicator& group) {
  const auto deadline = std::chrono::steady_clock::now() + 10 * testing::timeout_multiplier * 1s;
  while (group.describe_progress().find("failed") == std::string::npos) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << group.describe_progress();
    std::this_thread::sleep_for(10ms);
  }
}

TEST_F(GpuFailures, OfACollectiveAfterItsLastWaitReachWhoeverReadsOrSaves) {
  const auto group = one_rank();
  const Tensor x = ones({8}, on_gpu), host = ones({8});
  group->all_reduce({x.data_ptr(), 8, DType::f32}).wait();
  simgpu::inject("ncclCommGetAsyncError:1:3");
  wait_until_failed(*group);
  const auto says_why = ThrowsMessage<NcclError>(HasSubstr("internal error"));
  EXPECT_THAT([&] { x.to_vector<float>(); }, says_why);
  const testing::TemporaryFolder folder;
  io::AtomicFile file(folder.path() / "weights");
  EXPECT_THAT([&] { file.commit(); }, says_why);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "weights"));
  EXPECT_THAT([&] { group->barrier(); }, says_why);
}

TEST_F(GpuFailures, OfAnEventInTheBackgroundAreTheGroupsAndEndNoProcess) {
  const auto group = one_rank();
  const Tensor x = ones({8}, on_gpu);
  simgpu::inject("hang-collective:1;cudaEventQuery:1:700");
  const comm::Work work = group->all_reduce({x.data_ptr(), 8, DType::f32});
  wait_until_failed(*group);
  EXPECT_THAT([&] { work.synchronize(); },
              ThrowsMessage<CudaError>(AllOf(HasSubstr("cudaEventQuery"), HasSubstr("700"),
                                             HasSubstr("all_reduce #0 of 8 f32"))));
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);  // nothing else orders the end of x
}

TEST_F(GpuFailures, OfTheLastCollectiveEndTheJobThoughNobodyWaits) {
  const std::string mpiexec = LOCKSTEP_MPIEXEC;
  if (mpiexec.empty()) GTEST_SKIP() << "needs MPI";
  const auto result = testing::run_command(
      "LOCKSTEP_SIM_DEVICES=2 LOCKSTEP_SIM_FAULT=hang-collective:2 " + mpiexec +
      " --bind-to none -np 2 " LOCKSTEP_JOB_PROGRAM " unwaited --device cuda");
  EXPECT_EQ(result.exit_code, 1) << result.output;
  EXPECT_THAT(result.output, AllOf(HasSubstr("all_reduce"), HasSubstr("did not end within")));
}

TEST_F(GpuFailures, OfTheHeuristicsAreNoReasonToGoAnotherWayUnlessTheyLackAKernel) {
  const Tensor a = ones({8, 16}, on_gpu), weight = ones({16, 16}, on_gpu),
               bias = ones({16}, on_gpu);
  simgpu::inject("cublasLtMatmulAlgoGetHeuristic:1:7");
  EXPECT_THAT([&] { linear(a, weight, bias); },
              ThrowsMessage<CudaError>(
                  AllOf(HasSubstr("cublasLtMatmulAlgoGetHeuristic"), HasSubstr("invalid value"))));
  std::string logged;
  set_log_sink([&](std::string_view line) { logged += line; });
  const LogLevel before = log_level();
  set_log_level(LogLevel::info);
  simgpu::clear_faults();
  simgpu::inject("cublasLtMatmulAlgoGetHeuristic:1:15");
  EXPECT_EQ(sum(linear(a, weight, bias)).item(), 8 * 16 * 17.0);
  set_log_level(before);
  set_log_sink(nullptr);
  EXPECT_THAT(logged, AllOf(HasSubstr("cuBLASLt has no kernel"), HasSubstr("with bias"),
                            HasSubstr("not supported")));
}

TEST_F(GpuFailures, OfAKernelThatTheHeuristicsProposedLeaveTheProductToTheNext) {
  const Tensor a = ones({64, 1024}, on_gpu), b = ones({1024, 64}, on_gpu);  // split or not: two
  std::string logged;
  set_log_sink([&](std::string_view line) { logged += line; });
  simgpu::inject("cublasLtMatmul:1:15");
  EXPECT_EQ(sum(matmul(a, b)).item(), 64 * 64 * 1024.0);
  EXPECT_EQ(sum(matmul(a, b)).item(), 64 * 64 * 1024.0);
  set_log_sink(nullptr);
  EXPECT_THAT(logged, AllOf(HasSubstr("does not run"), HasSubstr("64 x 64, depth 1024"),
                            HasSubstr("not supported"), HasSubstr("the next one is taken")));
}

TEST_F(GpuFailures, OfTheOnlyKernelOfAFusedProductLeaveItToSeveral) {
  const Tensor a = ones({8, 24}, on_gpu), weight = ones({16, 24}, on_gpu),
               bias = ones({16}, on_gpu);
  simgpu::inject("cublasLtMatmul:1:15");
  EXPECT_EQ(sum(linear(a, weight, bias)).item(), 8 * 16 * 25.0);
}

}  // namespace
}  // namespace lockstep
