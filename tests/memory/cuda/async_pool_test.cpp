#include "memory/cuda/async_pool.hpp"

#include <chrono>
#include <cstddef>
#include <thread>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "lockstep/memory/out_of_memory.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "lockstep/runtime/info.hpp"
#include "lockstep/runtime/stream.hpp"

// The driver's own pool, whose frees are work of a stream.

namespace lockstep {
namespace {

TEST(AsyncPool, HandsOutWhatIsFreedOnTheStreamHoweverLateTheStreamIs) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  CudaAsyncPool pool(0);
  const StreamRef stream = current_stream(cuda(0));
  const std::size_t most = device_runtime(DeviceType::cuda).memory_info(0).first / 10 * 6;
  for (int round = 0; round < 3; ++round) {
    MemoryBlock* const block = pool.allocate(most, stream);
    ASSERT_TRUE(block);
    EXPECT_THROW(pool.allocate(most, stream), OutOfMemory);
    const auto be_late = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
    ASSERT_EQ(cudaLaunchHostFunc(static_cast<cudaStream_t>(stream.handle), be_late, nullptr),
              cudaSuccess);
    pool.deallocate(block);
  }
}

}  // namespace
}  // namespace lockstep
