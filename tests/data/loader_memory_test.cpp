#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>

#include <gtest/gtest.h>

#include "lockstep/data/data_loader.hpp"
#include "lockstep/data/sampler.hpp"
#include "lockstep/memory/memory_stats.hpp"
#include "lockstep/tensor/factories.hpp"

// What a loader keeps of its batches' memory.

namespace lockstep::data {
namespace {

constexpr std::int64_t batch_elements = 1 << 18;

struct MegabyteBatches {
  std::int64_t size() const { return 12; }
  Tensor fetch(std::span<const std::int64_t>) const { return zeros({batch_elements}); }
};

std::size_t live_bytes() { return memory_stats(cpu).live_bytes; }

class LoaderMemory : public ::testing::TestWithParam<int> {};

TEST_P(LoaderMemory, IsGivenBackWhereALoopIsStopped) {
  const std::size_t before = live_bytes();
  DataLoader loader(MegabyteBatches(), SequentialSampler(12),
                    {.num_workers = GetParam(), .prefetch = 4});
  auto it = loader.begin();
  ++it;
  const std::size_t prepared = GetParam() > 0 ? 4 : 0;
  const std::size_t expected = before + (1 + prepared) * batch_elements * sizeof(float);
  while (live_bytes() < expected) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  loader.stop();
  EXPECT_EQ(live_bytes(), before);
}

INSTANTIATE_TEST_SUITE_P(Workers, LoaderMemory, ::testing::Values(0, 2));

}  // namespace
}  // namespace lockstep::data
