#include <gmock/gmock.h>

#include "simgpu/simgpu.hpp"
#include "simgpu_fixture.hpp"

namespace simgpu {
namespace {

using ::testing::HasSubstr;

class SimHostWaits : public SimgpuTest {
 protected:
  cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  char* memory = make_memory(4096);
};

TEST_F(SimHostWaits, AreCountedByCallAndPlace) {
  const cudaEvent_t event = make_event();
  const HostWaits waits;
  for (int i = 0; i < 2; ++i) cudaStreamSynchronize(stream);
  cudaEventRecord(event, stream);
  cudaEventSynchronize(event);
  cudaDeviceSynchronize();
  EXPECT_EQ(waits.count(), 4u);
  EXPECT_THAT(waits.describe(), HasSubstr("2 x cudaStreamSynchronize at "));
  EXPECT_THAT(waits.describe(), HasSubstr("1 x cudaEventSynchronize at "));
  EXPECT_THAT(waits.describe(), HasSubstr("1 x cudaDeviceSynchronize at "));
  EXPECT_THAT(waits.describe(), HasSubstr("TestBody"));
}

TEST_F(SimHostWaits, AreThereForCopiesOfPageableMemoryOnly) {
  char pageable[64] = {};
  void* pinned = nullptr;
  ASSERT_EQ(cudaMallocHost(&pinned, 64), cudaSuccess);
  {
    const HostWaits waits;
    cudaMemsetAsync(memory, 0, 64, stream);
    cudaMemcpyAsync(pinned, memory, 64, cudaMemcpyDeviceToHost, stream);
    cudaMemcpyAsync(memory, pinned, 64, cudaMemcpyHostToDevice, stream);
    EXPECT_EQ(waits.describe(), "");
    cudaMemcpyAsync(memory, pageable, 64, cudaMemcpyHostToDevice, stream);
    cudaMemcpyAsync(pageable, memory, 64, cudaMemcpyDeviceToHost, stream);
    EXPECT_EQ(waits.count(), 2u);
    EXPECT_THAT(waits.describe(), HasSubstr("cudaMemcpyAsync"));
  }
  const HostWaits waits;
  cudaFreeHost(pinned);
  EXPECT_THAT(waits.describe(), HasSubstr("1 x cudaFreeHost at "));
}

TEST_F(SimHostWaits, AreNotThereForQuestions) {
  const cudaEvent_t event = make_event();
  const HostWaits waits;
  cudaEventRecord(event, stream);
  cudaEventQuery(event);
  cudaStreamQuery(stream);
  cudaStreamWaitEvent(stream, event, 0);
  EXPECT_EQ(waits.count(), 0u) << waits.describe();
}

}  // namespace
}  // namespace simgpu
