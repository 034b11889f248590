#include <array>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "memory/block_model.hpp"
#include "memory/caching_pool.hpp"
#include "memory/delayed_runtime.hpp"
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

/// Blocks that one thread leaves for others to free.
class Exchange {
 public:
  void leave(Marked marked) {
    const std::lock_guard lock(mutex_);
    left_.push_back(marked);
  }
  std::optional<Marked> collect() {
    const std::lock_guard lock(mutex_);
    if (left_.empty()) return std::nullopt;
    const Marked marked = left_.back();
    left_.pop_back();
    return marked;
  }

 private:
  std::mutex mutex_;
  std::vector<Marked> left_;
};

/// One thread's part of a stress test.
class Churn {
 public:
  Churn(MemoryPool& pool, testing::BlockModel& model, Exchange& exchange, std::uint32_t thread)
      : pool_(pool), model_(model), exchange_(exchange), thread_(thread), random_(thread + 1) {}

  /// Allocates and frees at random. @return blocks that somebody else had written to.
  int run(int operations) {
    for (int i = 0; i < operations; ++i) step(static_cast<std::uint32_t>(i));
    while (!held_.empty()) free(take_out(0));
    while (const auto left = exchange_.collect()) free(*left);
    return overlaps_;
  }

 private:
  void step(std::uint32_t i) {
    if (random_() % 10'000 == 0) random_() % 2 ? pool_.release_cached() : pool_.trim(1 << 24);
    if (random_() % 16 == 0)
      if (const auto left = exchange_.collect()) return free(*left);
    if (held_.size() <= 64 && (held_.empty() || random_() % 2 == 0)) return allocate(i);
    const Marked marked = take_out(random_() % held_.size());
    random_() % 16 == 0 ? exchange_.leave(marked) : free(marked);
  }
  void allocate(std::uint32_t i) {
    const std::size_t size = 1 + random_() % (std::size_t{64} << random_() % 16);
    const std::uint64_t mark = std::uint64_t{thread_} << 32 | i;
    held_.push_back({pool_.allocate(size, stream(static_cast<std::uint32_t>(random_()))), mark});
    model_.allocated(*held_.back().block, size);
    held_.back().write();
  }
  void free(Marked marked) {
    overlaps_ += !marked.intact();
    model_.freed(*marked.block);
    if (random_() % 8 == 0)
      pool_.record_stream(marked.block, stream(static_cast<std::uint32_t>(random_())));
    pool_.deallocate(marked.block);
  }
  Marked take_out(std::size_t index) {
    const Marked marked = held_[index];
    held_[index] = held_.back();
    held_.pop_back();
    return marked;
  }

  MemoryPool& pool_;
  testing::BlockModel& model_;
  Exchange& exchange_;
  std::uint32_t thread_;
  std::minstd_rand random_;
  std::vector<Marked> held_;
  int overlaps_ = 0;
};

/// Eight threads on four streams, held against a model.
void churn_by_threads(int operations) {
  constexpr int threads = 8;
  using Source = testing::ModelledUpstream<HostUpstream>;
  testing::BlockModel model;
  testing::DelayedRuntime runtime;
  CachingPool<Source> pool({{}, &model}, runtime, cpu, {.granularity = 64});
  Exchange exchange;
  std::array<int, threads> overlaps{};
  std::vector<std::thread> running;
  for (std::uint32_t i = 0; i < threads; ++i)
    running.emplace_back(
        [&, i] { overlaps[i] = Churn(pool, model, exchange, i).run(operations / threads); });
  for (std::thread& thread : running) thread.join();
  for (const int count : overlaps) EXPECT_EQ(count, 0);
  EXPECT_EQ(model.faults(), 0);
  EXPECT_EQ(model.live_bytes(), 0u);
  EXPECT_EQ(pool.statistics().live_bytes, 0u);
  EXPECT_EQ(pool.statistics().reserved_bytes, model.held_bytes());
  pool.release_cached();
  EXPECT_EQ(model.held_bytes(), 0u);
  EXPECT_EQ(runtime.live_events, 0);
}

TEST(CachingPoolStress, GivesNoByteTwiceToEightThreadsOnFourStreams) { churn_by_threads(100'000); }

TEST(CachingPoolStress, SlowGivesNoByteTwiceInAMillionOperations) { churn_by_threads(1'000'000); }

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
