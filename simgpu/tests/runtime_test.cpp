#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "base/leaks.hpp"
#include "base/options.hpp"
#include "engine/entry.hpp"
#include "simgpu_fixture.hpp"

namespace simgpu {
namespace {

using Runtime = SimgpuTest;

TEST_F(Runtime, KnowsItsDevices) {
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, options().devices);
  cudaDeviceProp properties{};
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  EXPECT_EQ(properties.maxThreadsPerBlock, 1024);
  EXPECT_EQ(properties.totalGlobalMem, options().memory);
  int value = 0;
  ASSERT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0), cudaSuccess);
  EXPECT_EQ(value, properties.multiProcessorCount);
  EXPECT_EQ(cudaSetDevice(count), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

TEST_F(Runtime, KeepsTheLastErrorOfEachThread) {
  EXPECT_EQ(cudaStreamQuery(reinterpret_cast<cudaStream_t>(&reports_)),
            cudaErrorInvalidResourceHandle);
  cudaError_t elsewhere = cudaErrorUnknown;
  std::thread([&] { elsewhere = cudaPeekAtLastError(); }).join();
  EXPECT_EQ(elsewhere, cudaSuccess);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorNotReady), "cudaErrorNotReady");
}

TEST_F(Runtime, ClampsPrioritiesAndKeepsFlags) {
  int least = 0, greatest = 0, priority = 1;
  cudaDeviceGetStreamPriorityRange(&least, &greatest);
  EXPECT_LT(greatest, least);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest - 7),
            cudaSuccess);
  unsigned flags = 0;
  cudaStreamGetPriority(stream, &priority);
  cudaStreamGetFlags(stream, &flags);
  EXPECT_EQ(priority, greatest);
  EXPECT_EQ(flags, unsigned{cudaStreamNonBlocking});
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(nullptr), cudaErrorInvalidResourceHandle);
  static_cast<void>(cudaGetLastError());
}

TEST_F(Runtime, FinishesTheWorkOfADestroyedStream) {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  const cudaEvent_t event = make_event();
  put(stream, "work");
  cudaEventRecord(event, stream);
  cudaStreamDestroy(stream);
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
  EXPECT_EQ(ran_, std::vector<std::string>{"work"});
}

TEST_F(Runtime, MeasuresVirtualTimeBetweenEvents) {
  const cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  const cudaEvent_t start = make_event(), end = make_event();
  cudaEventRecord(start, stream);
  for (int i = 0; i < 50; ++i) put(stream, "work");
  cudaEventRecord(end, stream);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventSynchronize(end), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaSuccess);
  EXPECT_GT(milliseconds, 0.0F);
  const cudaEvent_t untimed = make_event(cudaEventDisableTiming);
  cudaEventRecord(untimed, stream);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, untimed), cudaErrorInvalidResourceHandle);
  static_cast<void>(cudaGetLastError());
}

TEST_F(Runtime, TakesAnEventNeverRecordedAsDone) {
  const cudaEvent_t event = make_event();
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(nullptr, event, 0), cudaSuccess);
}

TEST_F(Runtime, RunsTheLegacyStreamBetweenBlockingOnes) {
  const cudaStream_t stream = make_stream(cudaStreamDefault);
  for (int i = 0; i < 10; ++i) {
    put(stream, "blocking");
    put(nullptr, "legacy");
  }
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  ASSERT_EQ(ran_.size(), 20u);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(ran_[i], i % 2 == 0 ? "blocking" : "legacy");
}

TEST_F(Runtime, RunsHostFunctionsInStreamOrderAndForbidsCallsInThem) {
  const cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  struct Seen {
    std::vector<std::string>* ran;
    std::size_t before = 0;
    cudaError_t status = cudaSuccess;
  } seen{&ran_};
  put(stream, "work");
  cudaLaunchHostFunc(
      stream,
      [](void* data) {
        auto* const to = static_cast<Seen*>(data);
        to->before = to->ran->size();
        to->status = cudaStreamSynchronize(nullptr);
      },
      &seen);
  cudaStreamSynchronize(stream);
  EXPECT_EQ(seen.before, 1u);
  EXPECT_EQ(seen.status, cudaErrorNotPermitted);
}

/// What two functions of streams, or one and the host, tell each other.
struct Told {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;

  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return done; });
  }
  void tell() {
    const std::lock_guard lock(mutex);
    done = true;
    changed.notify_all();
  }
  static void wait_for(void* data) { static_cast<Told*>(data)->wait(); }
  static void tell_to(void* data) { static_cast<Told*>(data)->tell(); }
};

TEST_F(Runtime, AHostFunctionThatBlocksHoldsUpItsStreamAlone) {
  const cudaStream_t blocked = make_stream(cudaStreamNonBlocking);
  const cudaStream_t other = make_stream(cudaStreamNonBlocking);
  Told told;
  cudaLaunchHostFunc(blocked, &Told::wait_for, &told);
  put(blocked, "behind");
  put(other, "other");
  cudaStreamSynchronize(other);
  EXPECT_EQ(ran_, std::vector<std::string>{"other"});
  EXPECT_EQ(cudaStreamQuery(blocked), cudaErrorNotReady);
  told.tell();
  cudaStreamSynchronize(blocked);
  EXPECT_EQ(ran_.size(), 2u);
  static_cast<void>(cudaGetLastError());
}

TEST_F(Runtime, HostFunctionsOfTwoStreamsMayWaitForEachOther) {
  Told told;
  cudaLaunchHostFunc(make_stream(cudaStreamNonBlocking), &Told::wait_for, &told);
  cudaLaunchHostFunc(make_stream(cudaStreamNonBlocking), &Told::tell_to, &told);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(Runtime, RunsHostFunctionsWhileTheHostIsSilent) {
  const cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  Told told;
  put(stream, "work");
  cudaLaunchHostFunc(stream, &Told::tell_to, &told);
  told.wait();
  EXPECT_EQ(ran_.size(), 1u);
}

TEST_F(Runtime, RunsHostFunctionsOfAGraphAtEachLaunch) {
  const cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  int calls = 0;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  cudaLaunchHostFunc(
      stream, [](void* count) { ++*static_cast<int*>(count); }, &calls);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  for (int i = 0; i < 3; ++i) cudaGraphLaunch(executable, stream);
  cudaStreamSynchronize(stream);
  EXPECT_EQ(calls, 3);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

TEST_F(Runtime, AResetOfADeviceEndsWhatLivesOnIt) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  void* data = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&data, 1000), cudaSuccess);
  put(stream, "work", {{data, 1000, true}});
  EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
  EXPECT_EQ(ran_.size(), 1u) << "it waits for what is queued";
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventSynchronize(event), cudaErrorInvalidResourceHandle);
  std::size_t available = 0, total = 0;
  EXPECT_EQ(cudaMemGetInfo(&available, &total), cudaSuccess);
  EXPECT_EQ(available, total);
  EXPECT_EQ(cudaMalloc(&data, 1000), cudaSuccess) << "the device can be used again";
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  static_cast<void>(cudaGetLastError());
  EXPECT_TRUE(reports_.empty());
}

TEST_F(Runtime, AnswersQueriesTruthfully) {
  const cudaStream_t stream = make_stream(cudaStreamNonBlocking);
  for (int i = 0; i < 30; ++i) put(stream, "work");
  while (cudaStreamQuery(stream) == cudaErrorNotReady) {
  }
  EXPECT_EQ(ran_.size(), 30u);
  static_cast<void>(cudaGetLastError());
}

TEST_F(Runtime, CountsCallsByName) {
  int device = 0;
  cudaGetDevice(&device);
  std::uint64_t before = 0, after = 0;
  const auto calls = [] {
    for (const EntryPoint* entry = first_entry_point(); entry != nullptr; entry = entry->next())
      if (std::string(entry->name()) == "cudaGetDevice") return entry->calls();
    return std::uint64_t{0};
  };
  before = calls();
  cudaGetDevice(&device);
  after = calls();
  EXPECT_GT(before, 0u);
  EXPECT_EQ(after, before + 1);
}

TEST_F(Runtime, KnowsTheFunctionsThatACallCameThrough) {
  const CallSite here = CallSite::here();
  EXPECT_TRUE(is_below(here, "of_nobody;TestBody"));
  EXPECT_FALSE(is_below(here, "of_nobody;;"));
  EXPECT_FALSE(is_below(here, ""));
}

TEST_F(Runtime, TellsFunctionsThatPassACallOnFromOthers) {
  CallSite site;
  const std::function<void()> pass_on = [&] { site = CallSite::here(); };
  pass_on();
  EXPECT_TRUE(is_below(site, "std::function"));
  EXPECT_FALSE(is_below(site, "std::function", Frames::shown));
  EXPECT_TRUE(is_below(site, "TestBody", Frames::shown));
}

TEST_F(Runtime, NamesWhatWasNeverDestroyed) {
  keep_live_objects();
  const cudaEvent_t leaked = make_event();
  EXPECT_EQ(report_leaks(), 1u);
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0].finding, Finding::leak);
  EXPECT_NE(reports_[0].text.find("1 x event"), std::string::npos) << reports_[0].text;
  EXPECT_NE(reports_[0].text.find("simgpu/tests/"), std::string::npos) << reports_[0].text;
  static_cast<void>(leaked);
  begin_keeping();
  make_event();
  end_keeping();
  EXPECT_EQ(report_leaks(), 1u);
}

}  // namespace
}  // namespace simgpu
