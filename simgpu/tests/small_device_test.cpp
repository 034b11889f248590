#include <cstdlib>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/lockstep.hpp"
#include "simgpu/simgpu.hpp"

// Captured steps on a device that is nearly full. Its size is read once: each test needs a process
// of its own, as ctest gives it.

namespace simgpu {
namespace {

using namespace lockstep;

constexpr Device small_device = cuda(0);
const TensorOptions f32_there{.dtype = DType::f32, .device = small_device};

// Makes steps on a device with so many bytes, of which no graph needs more than half. @return how
// many calls threw for want of memory.
int calls_without_memory(const char* memory, bool& replayed) {
  setenv("LOCKSTEP_SIM_MEMORY", memory, 1);
  Tensor weight = full({1024}, 1.0, f32_there).set_requires_grad();
  optim::SGD optimizer({weight}, {.lr = 1e-3});
  StepGraph graph([&](std::span<const Tensor> in) {
    const Tensor a = in[0] * weight, b = relu(a), loss = square(b).mean();
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    return std::vector{loss};
  });
  int thrown = 0;
  for (int i = 0; i < 5; ++i) try {
      const std::vector<Tensor> results = graph({ones({256, 1024}, f32_there)});
      EXPECT_GT(results[0].item(), 0.9);
    } catch (const OutOfMemory&) {
      ++thrown;
    }
  replayed = graph.replayed();
  EXPECT_EQ(graph.fallback_reason().empty(), replayed);
  return thrown;
}

class SmallDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::testing::UnitTest::GetInstance()->test_to_run_count() > 1)
      GTEST_SKIP() << "needs a process of its own";
  }
  void TearDown() override { EXPECT_EQ(findings(), 0u); }
};

TEST_F(SmallDevice, GivesGraphsWhatThePoolHasCached) {
  bool replayed = false;
  EXPECT_EQ(calls_without_memory("20000000", replayed), 0);
  EXPECT_TRUE(replayed);
}

TEST_F(SmallDevice, RunsEagerlyBehindACallForWhoseGraphItHasNoMemory) {
  bool replayed = true;
  EXPECT_EQ(calls_without_memory("16000000", replayed), 1);
  EXPECT_FALSE(replayed);
}

// What the first call of a further shape took stays with nobody, and graphs are made anew.
TEST_F(SmallDevice, RunsAFurtherShapeEagerlyForWhoseGraphItHasNoMemory) {
  constexpr std::int64_t size = 1 << 18;
  setenv("LOCKSTEP_SIM_MEMORY", "120000000", 1);
  Tensor weight = full({size}, 1.0, f32_there).set_requires_grad();
  const Tensor others = full({20 * size}, 1.0, f32_there);
  optim::SGD optimizer({weight}, {.lr = 1e-3});
  StepGraph graph([&](std::span<const Tensor> in) {
    std::vector<Tensor> held;
    if (in[0].dim() == 2) {
      const NoGradGuard no_recording;
      for (int k = 0; k < 6; ++k) held.push_back(in[0] + 1.0);
    }
    const Tensor loss = (weight * in[0].reshape({-1}).slice(0, 0, size)).mean();
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    return std::vector{loss};
  });
  const Tensor small = full({size}, 1.0, f32_there), large = full({10, size}, 1.0, f32_there);
  for (int i = 0; i < 5; ++i) graph({small});
  EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
  EXPECT_THROW(graph({large}), OutOfMemory);
  EXPECT_GT(graph({large})[0].item(), 0.9);
  EXPECT_FALSE(graph.replayed());
  for (int i = 0; i < 3; ++i) EXPECT_GT(graph({small})[0].item(), 0.9);
  EXPECT_TRUE(graph.replayed()) << graph.fallback_reason();
}

}  // namespace
}  // namespace simgpu
