#include "lockstep/memory/block_observer.hpp"

#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memory/caching_pool.hpp"
#include "memory/fake_upstream.hpp"
#include "support/fake_runtime.hpp"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using testing::FakeRuntime;
using testing::FakeUpstream;
using ::testing::IsEmpty;
using testing::UpstreamLog;

struct BlockEvent {
  std::string what;
  void* data;
  std::size_t bytes;
  StreamRef stream;
  bool operator==(const BlockEvent&) const = default;
};

class RecordingObserver final : public BlockObserver {
 public:
  explicit RecordingObserver(std::size_t guard = 0) : guard_(guard) { set_block_observer(this); }
  ~RecordingObserver() override { set_block_observer(nullptr); }
  std::size_t guard_bytes(Device) const noexcept override { return guard_; }
  void allocated(const MemoryBlock& block, std::size_t bytes, StreamRef stream) noexcept override {
    events.push_back({"out", block.data, bytes, stream});
  }
  void freed(const MemoryBlock& block, StreamRef stream) noexcept override {
    events.push_back({"back", block.data, block.size, stream});
  }
  void named(const void* data, std::size_t bytes, std::string_view name) noexcept override {
    events.push_back({std::string(name), const_cast<void*>(data), bytes, {}});
  }

  std::vector<BlockEvent> events;

 private:
  std::size_t guard_;
};

class BlockObserverTest : public ::testing::Test {
 protected:
  FakeRuntime runtime;
  UpstreamLog log;
  StreamRef a = runtime.create_stream(cpu, StreamPriority::normal);
  StreamRef b = runtime.create_stream(cpu, StreamPriority::normal);
  CachingPool<FakeUpstream> pool{{&log}, runtime, cpu};
};

TEST_F(BlockObserverTest, SeesTheBytesAskedForAndTheStream) {
  RecordingObserver observer;
  MemoryBlock* block = pool.allocate(700, a);
  void* const data = block->data;
  pool.deallocate(block);
  EXPECT_THAT(observer.events,
              ElementsAre(BlockEvent{"out", data, 700, a}, BlockEvent{"back", data, 1024, a}));
}

TEST_F(BlockObserverTest, SeesABlockOfOtherStreamsComeBackWhenTheyAreDone) {
  RecordingObserver observer;
  MemoryBlock* block = pool.allocate(512, a);
  FakeRuntime::queue_work(b);
  pool.record_stream(block, b);
  pool.deallocate(block);
  EXPECT_EQ(observer.events.size(), 1u);
  FakeRuntime::finish(b);
  pool.deallocate(pool.allocate(1 << 19, a));
  ASSERT_GE(observer.events.size(), 2u);
  EXPECT_EQ(observer.events[1].what, "back");
}

TEST_F(BlockObserverTest, GetsUnusedBytesBehindEachBlock) {
  RecordingObserver observer(256);
  MemoryBlock* first = pool.allocate(512, a);
  EXPECT_EQ(first->size, 1024u);
  MemoryBlock* second = pool.allocate(200, a);
  EXPECT_EQ(second->size, 512u);
  pool.deallocate(first);
  pool.deallocate(second);
}

TEST_F(BlockObserverTest, HearsNamesWhileItIsSet) {
  int value = 0;
  {
    RecordingObserver observer;
    name_memory(&value, sizeof value, "a weight");
    EXPECT_THAT(observer.events, ElementsAre(BlockEvent{"a weight", &value, sizeof value, {}}));
  }
  name_memory(&value, sizeof value, "unheard");
  EXPECT_EQ(block_observer(), nullptr);
}

}  // namespace
}  // namespace lockstep
