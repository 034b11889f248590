#include <stdexcept>

#include "base/faults.hpp"
#include "simgpu/simgpu.hpp"
#include "simgpu_fixture.hpp"

namespace simgpu {
namespace {

class Fault : public SimgpuTest {
 protected:
  ~Fault() override { clear_faults(); }
};

TEST_F(Fault, LetsTheNthCallFail) {
  inject("cudaEventCreate:2:2;cudaEventCreate:3:999");
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaEventCreate(&event), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaEventCreate(&event), cudaErrorUnknown);
  EXPECT_EQ(cudaGetLastError(), cudaErrorUnknown);
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(Fault, StopsAStreamAndNoOther) {
  const cudaStream_t stalled = make_stream(cudaStreamNonBlocking);
  const cudaStream_t other = make_stream(cudaStreamNonBlocking);
  unsigned long long number = 0;
  cudaStreamGetId(stalled, &number);
  const cudaEvent_t event = make_event();
  Faults faults;
  EXPECT_FALSE(faults.stalled(static_cast<unsigned>(number)));
  faults.add("stall-stream:" + std::to_string(number));
  EXPECT_TRUE(faults.stalled(static_cast<unsigned>(number)));
  EXPECT_FALSE(faults.stalled(static_cast<unsigned>(number) + 1));
  static_cast<void>(other);
  static_cast<void>(event);
}

TEST_F(Fault, CountsCollectivesAndLaunches) {
  Faults faults;
  faults.add("hang-collective:2;sticky-error:1:700;out-of-memory:100");
  EXPECT_FALSE(faults.collective_hangs());
  EXPECT_TRUE(faults.collective_hangs());
  EXPECT_FALSE(faults.collective_hangs());
  EXPECT_EQ(faults.on_launch(), 700);
  EXPECT_EQ(faults.on_launch(), std::nullopt);
  EXPECT_TRUE(faults.out_of_memory(101));
  EXPECT_FALSE(faults.out_of_memory(100));
}

TEST_F(Fault, SaysWhatItDoesNotUnderstand) {
  for (const char* text : {"cudaMalloc", "cudaMalloc:x:2", "stall-stream:1:2", "cudaMalloc:1"})
    EXPECT_THROW(inject(text), std::invalid_argument) << text;
}

using FaultDeathTest = Fault;

// What cannot be undone happens in a process of its own.
template <class Body>
void in_own_process(Body body, const char* output) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        body();
        std::fprintf(stderr, "as expected\n");
        std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), output);
}

TEST_F(FaultDeathTest, StickyErrorsStay) {
  in_own_process(
      [&] {
        inject("sticky-error:2:719");
        put(nullptr, "one");
        EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        put(nullptr, "two");
        EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
        EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
        EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
        int device = 0;
        EXPECT_EQ(cudaGetDevice(&device), cudaErrorLaunchFailure);
      },
      "as expected");
}

TEST_F(FaultDeathTest, AStalledStreamIsNeverReady) {
  in_own_process(
      [&] {
        const cudaStream_t stalled = make_stream(cudaStreamNonBlocking);
        const cudaStream_t other = make_stream(cudaStreamNonBlocking);
        unsigned long long number = 0;
        cudaStreamGetId(stalled, &number);
        inject("stall-stream:" + std::to_string(number));
        put(stalled, "stalled");
        put(other, "other");
        EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
        for (int i = 0; i < 5000; ++i) EXPECT_EQ(cudaStreamQuery(stalled), cudaErrorNotReady);
        EXPECT_EQ(ran_, std::vector<std::string>{"other"});
      },
      "as expected");
}

}  // namespace
}  // namespace simgpu
