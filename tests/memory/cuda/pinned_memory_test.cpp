#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "memory/caching_pool.hpp"
#include "memory/direct_pool.hpp"
#include "memory/upstream.hpp"
#include "support/place.hpp"

// Page-locked host memory. Built where the library has GPU code.

namespace lockstep {
namespace {

class PinnedMemoryGpu : public testing::OnGpu {
 protected:
  DeviceRuntime& runtime = device_runtime(DeviceType::cuda);
  PinnedUpstream pinned;
};

TEST_F(PinnedMemoryGpu, IsCopiedFromAndTo) {
  constexpr std::size_t bytes = 3 << 16;
  auto* const sent = static_cast<char*>(pinned.allocate(bytes));
  auto* const received = static_cast<char*>(pinned.allocate(bytes));
  ASSERT_NE(sent, nullptr);
  ASSERT_NE(received, nullptr);
  for (std::size_t i = 0; i < bytes; ++i) sent[i] = static_cast<char>(i % 251);
  const Stream stream(device);
  MemoryBlock* const block = device_allocator(device).allocate(bytes, stream);
  runtime.copy(block->data, sent, bytes, stream);
  runtime.copy(received, block->data, bytes, stream);
  stream.synchronize();
  EXPECT_EQ(std::memcmp(sent, received, bytes), 0);
  device_allocator(device).deallocate(block);
  pinned.deallocate(sent, bytes);
  pinned.deallocate(received, bytes);
}

TEST_F(PinnedMemoryGpu, IsNullWhereThereIsNoMore) {
  EXPECT_EQ(pinned.allocate(std::size_t{1} << 50), nullptr);
}

TEST_F(PinnedMemoryGpu, ServesAPool) {
  CachingPool<PinnedUpstream> pool(pinned, runtime, device);
  const Stream stream(device);
  MemoryBlock* const first = pool.allocate(1000, stream);
  void* const data = first->data;
  std::memset(data, 1, 1000);
  pool.deallocate(first);
  MemoryBlock* const second = pool.allocate(1000, stream);
  EXPECT_EQ(second->data, data);
  pool.deallocate(second);
}

TEST_F(PinnedMemoryGpu, IsNotGivenBackUnderACopyWithoutAPool) {
  UnpooledAllocator<PinnedUpstream> unpooled(pinned, cpu, &runtime);
  constexpr std::size_t bytes = 8 << 20;
  const Stream stream(device);
  MemoryBlock* const there = device_allocator(device).allocate(bytes, stream);
  MemoryBlock* const here = unpooled.allocate(bytes, {});
  std::memset(here->data, 3, bytes);
  runtime.copy(there->data, here->data, bytes, stream);
  unpooled.record_stream(here, stream);
  unpooled.deallocate(here);  // the simulated GPU ends the program if the copy still reads
  std::vector<char> copied(bytes);
  runtime.copy(copied.data(), there->data, bytes, stream);
  stream.synchronize();
  EXPECT_EQ(copied, std::vector<char>(bytes, 3));
  device_allocator(device).deallocate(there);
}

}  // namespace
}  // namespace lockstep
