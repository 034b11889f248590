#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string_view>

#include <gtest/gtest.h>

#include "lockstep/memory/block_observer.hpp"
#include "memory/caching_pool.hpp"
#include "memory/queued_runtime.hpp"

// Blocks that several streams use, over streams whose work is done late and in any order.

namespace lockstep {
namespace {

using testing::QueuedRuntime;

/// Overwrites each block that is freed, in the order of its stream.
class Poisoner final : public BlockObserver {
 public:
  Poisoner() { set_block_observer(this); }
  ~Poisoner() override { set_block_observer(nullptr); }
  std::size_t guard_bytes(Device) const noexcept override { return 0; }
  void allocated(const MemoryBlock&, std::size_t, StreamRef) noexcept override {}
  void freed(const MemoryBlock& block, StreamRef stream) noexcept override {
    QueuedRuntime::queue(stream,
                         [data = block.data, size = block.size] { std::memset(data, 0xDD, size); });
  }
  void named(const void*, std::size_t, std::string_view) noexcept override {}
};

/// Waits for the device before memory goes back, as drivers do.
struct WaitingUpstream : HostUpstream {
  QueuedRuntime* runtime;
  void deallocate(void* data, std::size_t bytes) noexcept {
    runtime->finish();
    HostUpstream::deallocate(data, bytes);
  }
};

class CrossStreamStress : public ::testing::Test {
 protected:
  /// Blocks are written on one stream, read on another behind an event, and freed at once.
  /// @return reads that found something else than was written.
  int corruptions(int rounds, bool record) {
    QueuedRuntime runtime;
    CachingPool<WaitingUpstream> pool({{}, &runtime}, runtime, cpu);
    std::minstd_rand random(7);
    StreamRef streams[4];
    for (StreamRef& stream : streams) stream = runtime.create_stream(cpu, StreamPriority::normal);
    const Poisoner poisoner;
    int corrupted = 0;
    for (int round = 0; round < rounds; ++round) {
      const StreamRef own = streams[random() % 4], other = streams[random() % 4];
      const std::size_t size = std::size_t{16} << random() % 17;
      MemoryBlock* const block = pool.allocate(size, own);
      const auto mark = static_cast<std::uint32_t>(round);
      auto* const data = static_cast<std::byte*>(block->data);
      QueuedRuntime::queue(own, [=] { each_mark(data, size, mark, true); });
      void* const written = runtime.create_event(cpu, false);
      runtime.record_event(written, own);
      runtime.wait_event(written, other);
      runtime.destroy_event(cpu, written);
      QueuedRuntime::queue(other,
                           [=, &corrupted] { corrupted += !each_mark(data, size, mark, false); });
      if (record) pool.record_stream(block, other);
      pool.deallocate(block);
      for (auto steps = random() % 12; steps > 0; --steps) runtime.step(random);
      if (random() % 500 == 0) pool.trim(0);
    }
    runtime.finish();
    pool.release_cached();
    EXPECT_EQ(pool.statistics().live_bytes, 0u);
    EXPECT_EQ(pool.statistics().reserved_bytes, 0u);
    return corrupted;
  }

 private:
  /// Writes the mark at several places of a block, or looks for it there.
  static bool each_mark(std::byte* data, std::size_t size, std::uint32_t mark, bool write) {
    bool same = true;
    for (std::size_t at = 0; at + sizeof mark <= size; at += std::max<std::size_t>(size / 16, 4)) {
      if (write)
        std::memcpy(data + at, &mark, sizeof mark);
      else
        same &= std::memcmp(data + at, &mark, sizeof mark) == 0;
    }
    return same;
  }
};

TEST_F(CrossStreamStress, FindsNoBlockOverwrittenThatAnotherStreamReads) {
  EXPECT_EQ(corruptions(10'000, true), 0);
}

// Else the test above would say nothing.
TEST_F(CrossStreamStress, WouldFindItWithoutRecordStream) {
  EXPECT_GT(corruptions(1'000, false), 0);
}

}  // namespace
}  // namespace lockstep
