#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "lockstep/memory/allocator.hpp"
#include "lockstep/memory/memory_pool.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "lockstep/runtime/info.hpp"
#include "lockstep/runtime/stream.hpp"

namespace lockstep {
namespace {

// Runs over the pool, and with LOCKSTEP_POOL=off over what takes its place.
TEST(DeviceAllocator, RefusesWhatNoAddressSpaceHolds) {
  Allocator& host = device_allocator(cpu);
  constexpr std::size_t largest = std::numeric_limits<std::size_t>::max();
  for (const std::size_t bytes : {std::size_t{1} << 50, largest - 100, largest - 1, largest})
    EXPECT_THROW(host.deallocate(host.allocate(bytes, {})), OutOfMemory) << bytes;
}

TEST(DeviceAllocator, GivesAlignedMemoryOfAtLeastTheSize) {
  Allocator& host = device_allocator(cpu);
  for (const std::size_t bytes : {1, 63, 64, 65, 4097, 3 << 20}) {
    MemoryBlock* block = host.allocate(bytes, {});
    EXPECT_GE(block->size, bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block->data) % 64, 0u);
    host.deallocate(block);
  }
  EXPECT_EQ(host.allocate(0, {}), nullptr);
  host.deallocate(nullptr);
}

TEST(DeviceAllocator, CountsWhatIsLive) {
  Allocator& host = device_allocator(cpu);
  const PoolStatistics before = host.statistics();
  MemoryBlock* block = host.allocate(4096, {});
  EXPECT_EQ(host.statistics().live_bytes, before.live_bytes + block->size);
  EXPECT_EQ(host.statistics().allocations, before.allocations + 1);
  EXPECT_GE(host.statistics().peak_live_bytes, before.live_bytes + block->size);
  host.deallocate(block);
  EXPECT_EQ(host.statistics().live_bytes, before.live_bytes);
}

// A driver may give a new stream the handle of a destroyed one, by which the pool knows its blocks.
TEST(DeviceAllocator, GpuBlocksOfADestroyedStreamAreSafeWithTheNext) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device on this machine";
  Allocator& allocator = device_allocator(cuda(0));
  DeviceRuntime& runtime = device_runtime(DeviceType::cuda);
  constexpr std::size_t bytes = 1 << 20;
  for (int turn = 0; turn < 3; ++turn) {
    const Stream stream(cuda(0));
    MemoryBlock* const block = allocator.allocate(bytes, stream);
    runtime.fill_bytes(block->data, turn, bytes, stream);
    allocator.deallocate(block);
  }
}

TEST(DeviceAllocator, GpuMemoryGoesBackToTheDriverAtOnceWhereThePoolIsOff) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device on this machine";
  if (pool_kind() != PoolKind::none) GTEST_SKIP() << "needs LOCKSTEP_POOL=off";
  Allocator& allocator = device_allocator(cuda(0));
  DeviceRuntime& runtime = device_runtime(DeviceType::cuda);
  const Stream stream(cuda(0));
  MemoryBlock* const block = allocator.allocate(1 << 20, stream);
  runtime.fill_bytes(block->data, 1, 1 << 20, stream);
  EXPECT_EQ(allocator.statistics().reserved_bytes, std::size_t{1} << 20);
  allocator.deallocate(block);
  EXPECT_EQ(allocator.statistics().reserved_bytes, 0u);
}

TEST(DeviceAllocator, GpuMemoryThatAnotherStreamUsesStaysUntilThatIsDone) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device on this machine";
  Allocator& allocator = device_allocator(cuda(0));
  DeviceRuntime& runtime = device_runtime(DeviceType::cuda);
  constexpr std::size_t bytes = 1 << 16;
  const Stream own(cuda(0)), other(cuda(0));
  for (int turn = 0; turn < 20; ++turn) {
    MemoryBlock* const block = allocator.allocate(bytes, own);
    void* const written = runtime.create_event(cuda(0), false);
    runtime.fill_bytes(block->data, turn, bytes, own);
    runtime.record_event(written, own);
    runtime.wait_event(written, other);
    runtime.fill_bytes(block->data, turn + 1, bytes, other);
    runtime.destroy_event(cuda(0), written);
    allocator.record_stream(block, other);
    allocator.deallocate(block);
  }
  allocator.release_cached();
}

TEST(DeviceAllocator, IsNamedBeforeTheFirstAllocationOrNotAtAll) {
  EXPECT_THROW(set_pool("buddy"), InvalidArgument);
  static_cast<void>(device_allocator(cpu));
  const PoolKind kind = pool_kind();
  EXPECT_THROW(set_pool(kind == PoolKind::none ? "caching" : "none"), InvalidArgument);
  const char* const same[] = {"caching", "growable", "async", "none"};
  set_pool(same[static_cast<int>(kind)]);
}

}  // namespace
}  // namespace lockstep
