#include "memory/file_upstream.hpp"

#include <cstring>

#include <gtest/gtest.h>

#include "memory/caching_pool.hpp"
#include "memory/upstream.hpp"
#include "support/fake_runtime.hpp"

namespace lockstep {
namespace {

static_assert(Upstream<FileUpstream>);

class FileUpstreamTest : public ::testing::Test {
 protected:
  testing::FakeRuntime runtime;
  StreamRef stream = runtime.create_stream(cpu, StreamPriority::normal);
};

TEST_F(FileUpstreamTest, IsAPoolsSourceOfMemory) {
  CachingPool<FileUpstream> pool(FileUpstream(std::filesystem::temp_directory_path()), runtime,
                                 cpu);
  MemoryBlock* const block = pool.allocate(5 << 20, stream);
  std::memset(block->data, 7, 5 << 20);
  EXPECT_EQ(static_cast<char*>(block->data)[(5 << 20) - 1], 7);
  void* const place = block->data;
  pool.deallocate(block);
  MemoryBlock* const again = pool.allocate(5 << 20, stream);
  EXPECT_EQ(again->data, place);
  pool.deallocate(again);
  pool.trim(0);
  EXPECT_EQ(pool.statistics().reserved_bytes, 0u);
}

TEST_F(FileUpstreamTest, HasNoMoreWhereThereIsNoFolder) {
  CachingPool<FileUpstream> pool(FileUpstream("/no/such/folder"), runtime, cpu);
  EXPECT_THROW(pool.allocate(1 << 20, stream), OutOfMemory);
  EXPECT_EQ(pool.statistics().live_bytes, 0u);
}

}  // namespace
}  // namespace lockstep
