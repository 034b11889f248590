#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "lockstep/core/error.hpp"
#include "lockstep/memory/allocator.hpp"
#include "lockstep/runtime/device_runtime.hpp"
#include "lockstep/runtime/event.hpp"
#include "lockstep/runtime/info.hpp"
#include "runtime/cuda/version_text.hpp"

namespace lockstep {
namespace {

TEST(CudaRuntime, CountsNoDevicesRatherThanThrowWithoutADriver) {
  EXPECT_GE(cuda_device_count(), 0);
  EXPECT_EQ(cuda_device_count(), cuda_device_count());
}

// Such a driver starts programs of any CUDA 12, and refuses kernels with more than 4 KiB of
// arguments.
TEST(CudaRuntime, SaysWhichDriverIsTooOldForItsKernels) {
  EXPECT_EQ(shortcoming_of_driver(12000),
            "the driver is for CUDA 12.0, the oldest that serves for 12.1: update the driver");
  EXPECT_EQ(shortcoming_of_driver(12010), "");
  EXPECT_EQ(shortcoming_of_driver(13000), "");
}

TEST(CudaRuntime, RefusesAPoolForADeviceThatIsNotThere) {
  EXPECT_THROW(device_allocator(cuda(63)), Error);
}

class CudaRuntimeGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device on this machine";
  }
};

TEST_F(CudaRuntimeGpu, CopiesThereAndBackInStreamOrder) {
  const Stream stream(cuda(0), StreamPriority::high);
  DeviceRuntime& runtime = device_runtime(DeviceType::cuda);
  Allocator& allocator = device_allocator(cuda(0));
  MemoryBlock* block = allocator.allocate(4096, stream);
  std::vector<char> sent(4096, 7);
  std::vector<char> received(4096, 0);
  runtime.copy(block->data, sent.data(), sent.size(), stream);
  runtime.fill_bytes(block->data, 9, 16, stream);
  runtime.copy(received.data(), block->data, received.size(), stream);
  stream.synchronize();
  allocator.deallocate(block);
  EXPECT_EQ(received[0], 9);
  EXPECT_EQ(received[15], 9);
  EXPECT_EQ(received[16], 7);
  EXPECT_EQ(received[4095], 7);
}

TEST_F(CudaRuntimeGpu, TellsWhatTheDeviceIs) {
  DeviceRuntime& runtime = device_runtime(DeviceType::cuda);
  EXPECT_FALSE(runtime.device_name(0).empty());
  const auto [free, total] = runtime.memory_info(0);
  EXPECT_GT(total, std::size_t{1} << 20);
  EXPECT_GT(free, 0u);
  EXPECT_LE(free, total);
  constexpr std::size_t bytes = 64 << 20;
  MemoryBlock* block = device_allocator(cuda(0)).allocate(bytes, current_stream(cuda(0)));
  EXPECT_LE(runtime.memory_info(0).first + bytes, total);
  device_allocator(cuda(0)).deallocate(block);
}

TEST_F(CudaRuntimeGpu, TellsItsVersions) {
  for (const auto& [name, version] : runtime_components())
    EXPECT_TRUE(version.find('.') != std::string::npos) << name << " " << version;
  EXPECT_EQ(runtime_components().size(), 2u);
}

TEST_F(CudaRuntimeGpu, ErrorsNameTheCallAndSayWhy) {
  try {
    device_runtime(DeviceType::cuda).device_name(63);
    FAIL() << "there is no device 63";
  } catch (const CudaError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("cudaGetDeviceProperties"), std::string::npos) << what;
    EXPECT_EQ(error.status(), 101) << what;
  }
}

TEST_F(CudaRuntimeGpu, RefusesMoreMemoryThanTheDeviceHas) {
  Allocator& allocator = device_allocator(cuda(0));
  EXPECT_THROW(allocator.allocate(std::size_t{1} << 50, current_stream(cuda(0))), OutOfMemory);
}

TEST_F(CudaRuntimeGpu, EventsOrderStreamsAndTellTime) {
  const Stream first(cuda(0));
  const Stream second(cuda(0));
  Event begin(cuda(0), true);
  Event end(cuda(0), true);
  begin.record(first);
  begin.wait(second);
  end.record(second);
  end.synchronize();
  EXPECT_TRUE(begin.query());
  EXPECT_GE(begin.elapsed_ms(end), 0.0F);
}

TEST_F(CudaRuntimeGpu, EventsComeFromAReserve) {
  DeviceRuntime& runtime = device_runtime(DeviceType::cuda);
  void* const plain = runtime.create_event(cuda(0), false);
  void* const timed = runtime.create_event(cuda(0), true);
  EXPECT_NE(plain, timed);
  runtime.destroy_event(cuda(0), plain);
  runtime.destroy_event(cuda(0), timed);
  EXPECT_EQ(runtime.create_event(cuda(0), true), timed);
  EXPECT_EQ(runtime.create_event(cuda(0), false), plain);
  runtime.destroy_event(cuda(0), plain);
  runtime.destroy_event(cuda(0), timed);
  runtime.release_cached();
  const Event event(cuda(0));
  EXPECT_TRUE(event.query());
}

// A wait concerns the record that there was when it was queued, whoever has the event by then.
TEST_F(CudaRuntimeGpu, WaitsStayValidWhenTheirEventIsUsedAgain) {
  DeviceRuntime& runtime = device_runtime(DeviceType::cuda);
  Allocator& allocator = device_allocator(cuda(0));
  const Stream writer(cuda(0)), reader(cuda(0)), other(cuda(0));
  MemoryBlock* const block = allocator.allocate(4096, writer);
  std::vector<char> received(4096, 0);
  runtime.fill_bytes(block->data, 5, 4096, writer);
  {
    Event written(cuda(0));
    written.record(writer);
    written.wait(reader);
  }
  Event again(cuda(0));
  again.record(other);
  runtime.copy(received.data(), block->data, received.size(), reader);
  reader.synchronize();
  allocator.deallocate(block);
  EXPECT_EQ(received, std::vector<char>(4096, 5));
}

TEST_F(CudaRuntimeGpu, ComputesOnOneStreamOfItsOwnForAllThreads) {
  const StreamRef stream = current_stream(cuda(0));
  EXPECT_NE(stream.handle, nullptr) << "the legacy default stream synchronises with others";
  EXPECT_EQ(stream, default_stream(cuda(0)));
  std::thread([&] { EXPECT_EQ(current_stream(cuda(0)), stream); }).join();
  EXPECT_NE(stream, Stream(cuda(0)).ref());
}

// A stream that is given out again still has what its kernels left: zeros.
TEST_F(CudaRuntimeGpu, StreamsHaveCountersOfTheirOwn) {
  DeviceRuntime& runtime = device_runtime(DeviceType::cuda);
  std::uint32_t* const shared = runtime.counters(default_stream(cuda(0)));
  ASSERT_NE(shared, nullptr);
  StreamRef former;
  {
    const Stream stream(cuda(0));
    former = stream;
    std::uint32_t* const own = runtime.counters(stream);
    EXPECT_NE(own, shared);
    std::vector<std::uint32_t> counters(stream_counters, 1);
    runtime.copy(counters.data(), own, stream_counters * sizeof(std::uint32_t), stream);
    stream.synchronize();
    EXPECT_EQ(counters, std::vector<std::uint32_t>(stream_counters, 0));
    EXPECT_EQ(runtime.counters(stream), own);
  }
  const Stream again(cuda(0));
  EXPECT_EQ(again.ref(), former);
  EXPECT_NE(runtime.counters(again), nullptr);
  EXPECT_EQ(runtime.counters({cuda(0)}), nullptr) << "of the driver's legacy default stream";
}

}  // namespace
}  // namespace lockstep
