#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "memory/caching_pool.hpp"
#include "memory/fake_upstream.hpp"
#include "support/fake_runtime.hpp"

namespace lockstep {
namespace {

std::array<int, 4> stream_tags;

/// One of four streams of the CPU: the pool keeps them apart by their handles.
StreamRef stream(std::uint32_t index) { return {cpu, &stream_tags[index % stream_tags.size()]}; }

/// A block marked all over with a value of its own.
struct Marked {
  MemoryBlock* block;
  std::uint64_t mark;

  template <class Visit>
  void each_word(Visit&& visit) const {
    auto* bytes = static_cast<std::byte*>(block->data);
    const std::size_t stride = block->size > 4096 ? 1024 : 64;
    for (std::size_t at = 0; at < block->size; at += stride) visit(bytes + at);
    visit(bytes + block->size - sizeof(mark));
  }
  void write() const {
    each_word([this](std::byte* at) { std::memcpy(at, &mark, sizeof mark); });
  }
  bool intact() const {
    bool same = true;
    each_word([&](const std::byte* at) { same &= std::memcmp(at, &mark, sizeof mark) == 0; });
    return same;
  }
};

/// Allocates and frees at random until `operations` are done. @return overlaps seen.
int churn(Allocator& pool, std::uint32_t thread, int operations) {
  std::minstd_rand random(thread + 1);
  std::vector<Marked> held;
  int overlaps = 0;
  const auto free_one = [&](std::size_t index) {
    overlaps += !held[index].intact();
    if (random() % 8 == 0)
      pool.record_stream(held[index].block, stream(static_cast<std::uint32_t>(random())));
    pool.deallocate(held[index].block);
    held[index] = held.back();
    held.pop_back();
  };
  for (int i = 0; i < operations; ++i) {
    if (held.size() > 64 || (!held.empty() && random() % 2 == 0)) {
      free_one(random() % held.size());
      continue;
    }
    const std::size_t size = 1 + random() % (std::size_t{64} << random() % 15);
    const std::uint64_t mark = std::uint64_t{thread} << 32 | static_cast<std::uint32_t>(i);
    held.push_back({pool.allocate(size, stream(static_cast<std::uint32_t>(random()))), mark});
    held.back().write();
    if (random() % 50'000 == 0) pool.release_cached();
  }
  while (!held.empty()) free_one(0);
  return overlaps;
}

/// Real memory, and how much of it is out.
struct CountedHostUpstream : HostUpstream {
  std::size_t* held;
  void* allocate(std::size_t bytes) {
    *held += bytes;
    return HostUpstream::allocate(bytes);
  }
  void deallocate(void* data, std::size_t bytes) noexcept {
    *held -= bytes;
    HostUpstream::deallocate(data, bytes);
  }
};

TEST(CachingPoolStress, GivesNoByteTwiceToEightThreadsOnFourStreams) {
  constexpr int threads = 8, operations = 1'000'000;
  std::size_t held = 0;
  std::array<int, threads> overlaps{};
  CachingPool<CountedHostUpstream> pool({{}, &held}, device_runtime(DeviceType::cpu), cpu,
                                        {.granularity = 64});
  std::vector<std::thread> running;
  for (std::uint32_t i = 0; i < threads; ++i)
    running.emplace_back([&, i] { overlaps[i] = churn(pool, i, operations / threads); });
  for (std::thread& thread : running) thread.join();
  for (const int count : overlaps) EXPECT_EQ(count, 0);
  EXPECT_EQ(pool.statistics().live_bytes, 0u);
  EXPECT_EQ(pool.statistics().reserved_bytes, held);
  pool.release_cached();
  EXPECT_EQ(held, 0u);
}

/// The memory traffic of a training step: activations that stay until backward, temporaries that do
/// not, gradients that live until the update.
void train_step(Allocator& pool, StreamRef stream, std::uint32_t seed) {
  std::minstd_rand random(seed);
  std::vector<MemoryBlock*> activations, gradients;
  for (int layer = 0; layer < 100; ++layer) {
    const std::size_t size = std::size_t{256} << random() % 16;
    MemoryBlock* temporary = pool.allocate(size / 2 + 1, stream);
    activations.push_back(pool.allocate(size, stream));
    pool.deallocate(temporary);
  }
  for (; !activations.empty(); activations.pop_back()) {
    gradients.push_back(pool.allocate(activations.back()->size / 3 + 1, stream));
    MemoryBlock* flowing = pool.allocate(activations.back()->size, stream);
    pool.deallocate(activations.back());
    pool.deallocate(flowing);
  }
  for (MemoryBlock* gradient : gradients) pool.deallocate(gradient);
}

TEST(CachingPoolStress, AsksTheUpstreamForNothingOnceWarm) {
  testing::FakeRuntime runtime;
  testing::UpstreamLog log;
  CachingPool<testing::FakeUpstream> pool({&log}, runtime, cpu);
  const StreamRef stream = runtime.create_stream(cpu, StreamPriority::normal);
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    for (int step = 0; step < 3; ++step) train_step(pool, stream, seed);
    const int warm = log.allocations;
    for (int step = 0; step < 200; ++step) train_step(pool, stream, seed);
    EXPECT_EQ(log.allocations, warm) << seed;
  }
}

}  // namespace
}  // namespace lockstep
