#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/leaks.hpp"
#include "cuda_runtime_api.h"
#include "engine/access_check.hpp"
#include "engine/operation.hpp"
#include "findings.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "memory/address_space.hpp"
#include "memory/device_side.hpp"
#include "memory/fast_path.hpp"

namespace simgpu {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::Findings;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

/// A segment and the two calls of a pool.
class SimPoolBlocks : public ::testing::Test {
 protected:
  static constexpr std::size_t segment_bytes = 4096;

  void SetUp() override {
    ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&segment, segment_bytes), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaFree(segment), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    static_cast<void>(cudaGetLastError());
  }

  std::byte* allocate(std::size_t offset, std::size_t bytes, std::size_t capacity) {
    const lockstep::MemoryBlock block = block_at(offset, capacity);
    lockstep::block_observer()->allocated(block, bytes, {lockstep::cuda(0), stream});
    return static_cast<std::byte*>(block.data);
  }
  void free_block(std::size_t offset, std::size_t capacity) {
    lockstep::block_observer()->freed(block_at(offset, capacity), {lockstep::cuda(0), stream});
  }
  lockstep::MemoryBlock block_at(std::size_t offset, std::size_t capacity) const {
    lockstep::MemoryBlock block;
    block.data = static_cast<std::byte*>(segment) + offset;
    block.size = capacity;
    return block;
  }
  void wait() { ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess); }

  Findings findings;
  cudaStream_t stream = nullptr;
  void* segment = nullptr;
};

TEST_F(SimPoolBlocks, AsksPoolsOfGpusAloneForGuards) {
  EXPECT_GT(lockstep::block_observer()->guard_bytes(lockstep::cuda(0)), 0U);
  EXPECT_EQ(lockstep::block_observer()->guard_bytes(lockstep::cpu), 0U);
}

TEST_F(SimPoolBlocks, WhatThePoolAddsToARequestIsOutOfBounds) {
  std::byte* const data = allocate(512, 700, 1024);
  wait();
  EXPECT_TRUE(is_writable(data + 696, 4));
  EXPECT_FALSE(is_writable(data + 697, 4));
  EXPECT_FALSE(is_writable(data - 1, 1)) << "memory of the pool that nobody has";
  const auto problem = problem_of({data + 700, 4, true});
  ASSERT_TRUE(problem.has_value());
  EXPECT_EQ(problem->finding, Finding::out_of_bounds);
  EXPECT_THAT(problem->text, HasSubstr("0 bytes past the end of the pool block of 700 bytes"));
  EXPECT_EQ(cudaMemset(data, 0, 701), cudaErrorInvalidValue);
}

TEST_F(SimPoolBlocks, AnAccessDoesNotReachIntoTheNeighbour) {
  std::byte* const first = allocate(0, 512, 512);
  allocate(512, 512, 512);
  wait();
  EXPECT_EQ(problem_of({first, 512, true}), std::nullopt);
  const auto problem = problem_of({first, 516, true});
  ASSERT_TRUE(problem.has_value());
  EXPECT_EQ(problem->finding, Finding::out_of_bounds);
}

TEST_F(SimPoolBlocks, ABlockIsFreshInStreamOrder) {
  std::byte* const data = allocate(0, 512, 512);
  ASSERT_EQ(cudaMemsetAsync(data, 1, 512, stream), cudaSuccess);
  free_block(0, 512);
  EXPECT_EQ(allocate(0, 256, 512), data);
  wait();
  EXPECT_THAT(findings.text(), IsEmpty()) << "the fill came before the block went back";
  EXPECT_EQ(first_uninitialized(data, 256), std::optional<std::size_t>(0));
  LiveRange range;
  EXPECT_TRUE(in_live_range(data, 256, range));
  EXPECT_FALSE(in_live_range(data, 257, range));
}

TEST_F(SimPoolBlocks, UseAfterItWentBackIsReported) {
  std::byte* const data = allocate(0, 512, 512);
  free_block(0, 512);
  EXPECT_EQ(cudaMemsetAsync(data, 1, 512, stream), cudaErrorInvalidValue);
  wait();
  EXPECT_THAT(findings.kinds(), ElementsAre(Finding::use_after_free));
  EXPECT_EQ(problem_of({data, 4, false})->finding, Finding::use_after_free);
  EXPECT_THAT(problem_of({data, 4, false})->text, HasSubstr("which its pool has back"));
}

TEST_F(SimPoolBlocks, AnOverwrittenGuardIsReportedWhenTheBlockGoesBack) {
  std::byte* const data = allocate(0, 700, 1024);
  wait();
  {
    const DeviceSideScope device;
    data[701] = std::byte{1};
  }
  free_block(0, 1024);
  wait();
  EXPECT_THAT(findings.kinds(), ElementsAre(Finding::out_of_bounds));
  EXPECT_THAT(findings.text(), HasSubstr("1 bytes past the end of the pool block"));
}

TEST_F(SimPoolBlocks, AReadOfWhatNobodyWroteNamesTheWriterOfTheRest) {
  std::byte* const data = allocate(0, 512, 512);
  ASSERT_EQ(cudaMemsetAsync(data, 1, 500, stream), cudaSuccess);
  wait();
  const auto problem = problem_of({data + 500, 4, false});
  ASSERT_TRUE(problem.has_value());
  EXPECT_EQ(problem->finding, Finding::uninitialized_read);
  EXPECT_THAT(problem->text, HasSubstr("last written by cudaMemsetAsync on stream"));
}

TEST_F(SimPoolBlocks, AReadOfWhatNobodyWroteNamesNoHandOut) {
  std::byte* const data = allocate(0, 512, 512);
  wait();
  EXPECT_THAT(problem_of({data, 4, false})->text, Not(HasSubstr("last written by")));
}

TEST_F(SimPoolBlocks, AnOverwrittenGuardIsReportedOnceWhenTheHostWaitsForTheDevice) {
  std::byte* const data = allocate(0, 700, 1024);
  ASSERT_EQ(enqueue(stream, {.name = "a library",
                             .run =
                                 [data] {
                                   data[703] = std::byte{1};
                                   return true;
                                 }}),
            cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  free_block(0, 1024);
  wait();
  EXPECT_THAT(findings.kinds(), ElementsAre(Finding::out_of_bounds));
  EXPECT_THAT(findings.text(), HasSubstr("3 bytes past the end of the pool block"));
}

TEST_F(SimPoolBlocks, ThatNeverGoBackAreLeaksAtTheirBytes) {
  const std::size_t before = report_leaks();
  allocate(0, 700, 1024);
  allocate(1024, 512, 512);
  free_block(1024, 512);
  EXPECT_EQ(report_leaks(), before + 1);
  EXPECT_THAT(findings.text(), HasSubstr("1 x pool block (700 bytes) never destroyed"));
  free_block(0, 1024);
  EXPECT_EQ(report_leaks(), before);
}

/// The block is used by a second stream, which starts behind the first one.
class SimPoolBlocksOfTwoStreams : public SimPoolBlocks {
 protected:
  void SetUp() override {
    SimPoolBlocks::SetUp();
    ASSERT_EQ(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
    std::byte* const data = allocate(0, 512, 512);
    put_behind(side, stream);
    ASSERT_EQ(cudaMemsetAsync(data, 1, 512, side), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(side), cudaSuccess);
    SimPoolBlocks::TearDown();
  }
  void put_behind(cudaStream_t waiting, cudaStream_t first) {
    ASSERT_EQ(cudaEventRecord(event, first), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(waiting, event, 0), cudaSuccess);
  }

  cudaStream_t side = nullptr;
  cudaEvent_t event = nullptr;
};

TEST_F(SimPoolBlocksOfTwoStreams, ReturnWithoutAnOrderToTheOtherStreamIsARace) {
  free_block(0, 512);
  allocate(0, 512, 512);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_THAT(findings.kinds(), Contains(Finding::race));
  EXPECT_THAT(findings.text(), HasSubstr("return of a pool block"));
}

// What a kernel touches becomes known when it has run: when the block has its next owner already.
TEST_F(SimPoolBlocksOfTwoStreams, ARaceWithTheNextOwnerTellsOfTheFormer) {
  std::atomic<bool> may_run = false;
  const Access used{block_at(0, 512).data, 512, false};
  const auto run = [&may_run, used] {
    while (!may_run) std::this_thread::yield();
    touched({used});
    return true;
  };
  ASSERT_EQ(enqueue(side, {.name = "kernel", .accesses_are_bounds = true, .run = run}),
            cudaSuccess);
  lockstep::name_memory(used.data, 512, "activation");
  free_block(0, 512);
  allocate(0, 256, 512);
  may_run = true;
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_THAT(findings.text(), HasSubstr("first   kernel reads it"));
  EXPECT_THAT(findings.text(), HasSubstr("second  hand-out of a pool block"));
  EXPECT_THAT(findings.text(), HasSubstr("before  pool block of 512 bytes"));
  EXPECT_THAT(findings.text(), HasSubstr("('activation')"));
}

TEST_F(SimPoolBlocksOfTwoStreams, ReturnBehindTheOtherStreamIsFine) {
  put_behind(stream, side);
  free_block(0, 512);
  allocate(0, 512, 512);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_THAT(findings.text(), IsEmpty());
}

TEST_F(SimPoolBlocksOfTwoStreams, ReturnAfterTheHostWaitedForTheOtherStreamIsFine) {
  ASSERT_EQ(cudaStreamSynchronize(side), cudaSuccess);
  free_block(0, 512);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_THAT(findings.text(), IsEmpty());
}

TEST(SimPoolBlocksOfTheSecondDevice, FollowThatDevicesDefaultStream) {
  Findings findings;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  lockstep::MemoryBlock block;
  block.size = 512;
  ASSERT_EQ(cudaMalloc(&block.data, block.size), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  lockstep::block_observer()->allocated(block, block.size, {lockstep::cuda(1), nullptr});
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(block.data, 1, block.size, nullptr), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  lockstep::block_observer()->freed(block, {lockstep::cuda(1), nullptr});
  ASSERT_EQ(cudaFree(block.data), cudaSuccess);
  EXPECT_THAT(findings.text(), IsEmpty());
}

TEST_F(SimPoolBlocks, CarryTheNamesThatTheProgramGives) {
  std::byte* const data = allocate(0, 512, 512);
  lockstep::name_memory(data, 512, "bucket 0");
  EXPECT_EQ(block_of(data + 8)->name, "bucket 0");
  free_block(0, 512);
  allocate(0, 512, 512);
  EXPECT_EQ(block_of(data + 8)->name, "");
}

}  // namespace
}  // namespace simgpu
