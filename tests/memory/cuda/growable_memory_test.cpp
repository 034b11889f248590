#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/memory/block_observer.hpp"
#include "lockstep/memory/out_of_memory.hpp"
#include "lockstep/runtime/event.hpp"
#include "memory/allocator_override.hpp"
#include "memory/caching_pool.hpp"
#include "memory/cuda/cuda_virtual_memory.hpp"
#include "memory/paged_upstream.hpp"
#include "memory/pool_churn.hpp"
#include "memory/private_pool.hpp"
#include "support/place.hpp"

// Segments of device memory that grow and shrink by pages. Built where the library has GPU code.

namespace lockstep {
namespace {

/// Virtual memory of a device that has little.
struct ScarceMemory : CudaVirtualMemory {
  ScarceMemory(int device, std::size_t* counter, std::size_t most)
      : CudaVirtualMemory(device), mapped(counter), capacity(most) {}
  std::size_t* mapped;
  std::size_t capacity;
  bool map(void* at, std::size_t bytes) {
    if (bytes > capacity - *mapped || !CudaVirtualMemory::map(at, bytes)) return false;
    *mapped += bytes;
    return true;
  }
  void unmap(void* at, std::size_t bytes) noexcept {
    *mapped -= bytes;
    CudaVirtualMemory::unmap(at, bytes);
  }
};

class GrowableMemoryGpu : public testing::OnGpu {
 protected:
  void SetUp() override {
    testing::OnGpu::SetUp();
    if (IsSkipped()) return;
    if (!CudaVirtualMemory::is_supported(device.index))
      GTEST_SKIP() << device << " has no virtual memory management";
    page = CudaVirtualMemory(device.index).page_bytes();
  }

  using Pool = CachingPool<PagedUpstream<ScarceMemory>>;
  std::unique_ptr<Pool> make_pool(std::size_t pages, PoolOptions options = {}) {
    options.small_segment = std::max(options.small_segment, page);
    ScarceMemory memory(device.index, &mapped, pages * page);
    return std::make_unique<Pool>(PagedUpstream<ScarceMemory>(memory, 2 * pages * page), runtime,
                                  device, options);
  }
  std::vector<unsigned char> read(const void* from, std::size_t bytes, StreamRef stream) {
    std::vector<unsigned char> values(bytes);
    runtime.copy(values.data(), from, bytes, stream);
    runtime.synchronize(stream);
    return values;
  }

  DeviceRuntime& runtime = device_runtime(DeviceType::cuda);
  std::size_t page = 0, mapped = 0;
};

TEST_F(GrowableMemoryGpu, GrowsInPlaceAndShrinksByPages) {
  PagedUpstream<ScarceMemory> upstream({device.index, &mapped, 6 * page}, 8 * page);
  const Stream stream(device);
  auto* const data = static_cast<std::byte*>(upstream.allocate(2 * page));
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % page, 0u);
  EXPECT_TRUE(upstream.extend(data + 2 * page, 3 * page));
  runtime.fill_bytes(data, 7, 5 * page, stream);
  EXPECT_EQ(read(data + 2 * page - 8, 16, stream), std::vector<unsigned char>(16, 7));
  EXPECT_FALSE(upstream.extend(data + 5 * page, 2 * page));  // no memory
  upstream.deallocate(data + page, 2 * page);
  EXPECT_TRUE(upstream.extend(data + page, page));
  runtime.fill_bytes(data + page, 9, page, stream);
  EXPECT_EQ(read(data + 2 * page - 1, 1, stream), std::vector<unsigned char>(1, 9));
  EXPECT_EQ(read(data + page - 1, 2, stream), (std::vector<unsigned char>{7, 9}));
  EXPECT_EQ(read(data + 3 * page, 8, stream), std::vector<unsigned char>(8, 7));
  upstream.deallocate(data, 2 * page);
  upstream.deallocate(data + 3 * page, 2 * page);
  EXPECT_EQ(mapped, 0u);
}

TEST_F(GrowableMemoryGpu, ServesARequestWheneverItsPagesAreFreeSomewhere) {
  const auto pool = make_pool(24);
  const Stream first(device), second(device);
  testing::PoolChurn blocks(
      *pool, {.capacity = 24 * page,
              .page = page,
              .operations = 3000,
              .streams = {first, second},
              .write = [&](const MemoryBlock& block, StreamRef stream,
                           unsigned char mark) { runtime.fill_bytes(block.data, mark, 1, stream); },
              .is_intact =
                  [&](const MemoryBlock& block, StreamRef stream, unsigned char mark) {
                    return read(block.data, 1, stream) == std::vector<unsigned char>(1, mark);
                  }});
  EXPECT_EQ(blocks.run(), 0);
  EXPECT_GT(blocks.failures(), 0);
  EXPECT_EQ(mapped, 0u);
}

TEST_F(GrowableMemoryGpu, WaitsForTheStreamBeforePagesGo) {
  const auto pool = make_pool(24);
  const Stream stream(device), other(device);
  MemoryBlock* const shared = pool->allocate(4 * page, stream);
  MemoryBlock* const own = pool->allocate(4 * page, stream);
  runtime.fill_bytes(own->data, 1, 4 * page, stream);
  runtime.fill_bytes(shared->data, 2, 4 * page, stream);
  Event filled(device);
  filled.record(stream);
  filled.wait(other);
  runtime.fill_bytes(shared->data, 3, 4 * page, other);
  pool->record_stream(shared, other);
  pool->deallocate(own);
  pool->deallocate(shared);
  pool->trim(0);
  MemoryBlock* const wide = pool->allocate(23 * page, stream);  // needs what waits, too
  // The simulated GPU's guards behind a block take one more.
  EXPECT_EQ(mapped, (block_observer() ? 24 : 23) * page);
  runtime.fill_bytes(wide->data, 4, 23 * page, stream);
  EXPECT_EQ(read(wide->data, 1, stream), std::vector<unsigned char>(1, 4));
  pool->deallocate(wide);
  pool->release_cached();
  EXPECT_EQ(mapped, 0u);
}

// What a step returned while it was captured is free in the pool, and launches write there.
TEST_F(GrowableMemoryGpu, PrivatePoolsKeepWhatGraphsUseWhenMemoryIsShort) {
  PrivatePool& pool = PrivatePool::borrow(device);
  const Stream stream(device);
  {
    const detail::AllocatorOverride use(device, pool);
    Allocator& memory = device_allocator(device);
    memory.deallocate(memory.allocate(std::size_t{8} << 20, stream));
    const std::size_t held = pool.statistics().reserved_bytes;
    pool.memory().set_limit(held);
    EXPECT_THROW(memory.allocate(std::size_t{16} << 20, stream), PoolOutOfMemory);
    EXPECT_EQ(pool.statistics().reserved_bytes, held);
    pool.memory().set_limit(~std::size_t{0});
  }
  pool.give_back();
  EXPECT_EQ(pool.statistics().reserved_bytes, 0u);
}

}  // namespace
}  // namespace lockstep
