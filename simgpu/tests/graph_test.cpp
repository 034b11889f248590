#include <algorithm>
#include <functional>
#include <thread>
#include <utility>

#include "simgpu_fixture.hpp"

namespace simgpu {
namespace {

class Graph : public SimgpuTest {
 protected:
  ~Graph() override {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
    static_cast<void>(cudaGetLastError());
  }

  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    ASSERT_EQ(cudaStreamBeginCapture(a_, mode), cudaSuccess);
  }

  // a_ and b_ take part: fork after "first", join before "last".
  void capture_fork() {
    begin();
    put(a_, "first", {{data_, 64, true}});
    cudaEventRecord(fork_, a_);
    cudaStreamWaitEvent(b_, fork_, 0);
    put(b_, "side", {{data_, 32, true}});
    put(a_, "main", {{data_ + 32, 32, true}});
    cudaEventRecord(join_, b_);
    cudaStreamWaitEvent(a_, join_, 0);
    put(a_, "last", {{data_, 64, false}});
    ASSERT_EQ(cudaStreamEndCapture(a_, &graph_), cudaSuccess);
  }

  std::ptrdiff_t place(const std::string& name) const {
    return std::find(ran_.begin(), ran_.end(), name) - ran_.begin();
  }

  cudaStream_t a_ = make_stream(cudaStreamNonBlocking);
  cudaStream_t b_ = make_stream(cudaStreamNonBlocking);
  cudaEvent_t fork_ = make_event(cudaEventDisableTiming);
  cudaEvent_t join_ = make_event(cudaEventDisableTiming);
  char* data_ = make_memory(64);
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

TEST_F(Graph, RunsNothingWhileCapturingAndAllWhenLaunched) {
  capture_fork();
  EXPECT_TRUE(ran_.empty());
  std::size_t nodes = 0;
  ASSERT_EQ(cudaGraphGetNodes(graph_, nullptr, &nodes), cudaSuccess);
  EXPECT_EQ(nodes, 4u);
  ASSERT_EQ(cudaGraphInstantiate(&executable_, graph_, 0), cudaSuccess);
  for (std::size_t round = 1; round <= 3; ++round) {
    ran_.clear();
    ASSERT_EQ(cudaGraphLaunch(executable_, b_), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(b_), cudaSuccess);
    ASSERT_EQ(ran_.size(), 4u);
    EXPECT_EQ(place("first"), 0);
    EXPECT_EQ(place("last"), 3);
  }
  EXPECT_TRUE(reports_.empty());
}

TEST_F(Graph, IsCheckedForRacesAmongItsBranches) {
  begin();
  put(a_, "first");
  cudaEventRecord(fork_, a_);
  cudaStreamWaitEvent(b_, fork_, 0);
  put(b_, "side", {{data_, 64, true}});
  put(a_, "main", {{data_, 64, true}});
  cudaEventRecord(join_, b_);
  cudaStreamWaitEvent(a_, join_, 0);
  ASSERT_EQ(cudaStreamEndCapture(a_, &graph_), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable_, graph_, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(executable_, a_), cudaSuccess);
  drain();
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_NE(reports_[0].text.find("of the graph launched on"), std::string::npos)
      << reports_[0].text;
}

TEST_F(Graph, IsOrderedWithWhatComesBeforeAndAfterIt) {
  capture_fork();
  ASSERT_EQ(cudaGraphInstantiate(&executable_, graph_, 0), cudaSuccess);
  put(a_, "before", {{data_, 64, true}});
  cudaGraphLaunch(executable_, a_);
  cudaGraphLaunch(executable_, a_);
  put(a_, "after", {{data_, 64, true}});
  drain();
  EXPECT_TRUE(reports_.empty()) << reports_[0].text;
  put(b_, "beside", {{data_, 64, true}});
  cudaGraphLaunch(executable_, a_);
  drain();
  EXPECT_FALSE(reports_.empty());
}

TEST_F(Graph, CannotBeCapturedWithAnAllocation) {
  begin();
  put(a_, "first");
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, 16), cudaErrorStreamCaptureUnsupported);
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0].finding, Finding::capture);
  EXPECT_NE(reports_[0].text.find("cudaMalloc is called"), std::string::npos) << reports_[0].text;
  EXPECT_EQ(cudaStreamEndCapture(a_, &graph_), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(graph_, nullptr);
}

TEST_F(Graph, CannotBeCapturedWithCallsThatAllocateFreeOrWait) {
  void* const pinned = [] {
    void* data = nullptr;
    EXPECT_EQ(cudaMallocHost(&data, 64), cudaSuccess);
    return data;
  }();
  void* made = nullptr;
  const std::pair<const char*, std::function<cudaError_t()>> calls[] = {
      {"cudaMalloc", [&] { return cudaMalloc(&made, 64); }},
      {"cudaFree", [&] { return cudaFree(data_); }},
      {"cudaMallocHost", [&] { return cudaMallocHost(&made, 64); }},
      {"cudaHostAlloc", [&] { return cudaHostAlloc(&made, 64, cudaHostAllocDefault); }},
      {"cudaFreeHost", [&] { return cudaFreeHost(pinned); }},
      {"cudaMemcpy", [&] { return cudaMemcpy(data_, pinned, 64, cudaMemcpyHostToDevice); }},
      {"cudaMemset", [&] { return cudaMemset(data_, 0, 64); }},
      {"cudaStreamSynchronize", [&] { return cudaStreamSynchronize(b_); }},
      {"cudaDeviceSynchronize", [&] { return cudaDeviceSynchronize(); }},
      {"cudaEventSynchronize", [&] { return cudaEventSynchronize(fork_); }},
      {"cudaEventQuery", [&] { return cudaEventQuery(fork_); }},
      {"cudaDeviceReset", [&] { return cudaDeviceReset(); }},
  };
  for (const auto& [name, call] : calls) {
    begin();
    put(a_, "first");
    reports_.clear();
    EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported) << name;
    ASSERT_EQ(reports_.size(), 1u) << name;
    EXPECT_NE(reports_[0].text.find(name), std::string::npos) << reports_[0].text;
    EXPECT_EQ(cudaStreamEndCapture(a_, &graph_), cudaErrorStreamCaptureInvalidated) << name;
  }
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
}

TEST_F(Graph, CannotBeCapturedWithAQueryOfItsStream) {
  begin();
  EXPECT_EQ(cudaStreamQuery(a_), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(a_, &graph_), cudaErrorStreamCaptureInvalidated);
}

TEST_F(Graph, OrdersWorkOutsideByExternalEvents) {
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(a_, fork_, cudaEventWaitExternal), cudaSuccess);
  put(a_, "captured", {{data_, 64, true}});
  EXPECT_EQ(cudaEventRecordWithFlags(join_, a_, cudaEventRecordExternal), cudaSuccess);
  put(a_, "more", {{data_, 64, false}});
  ASSERT_EQ(cudaStreamEndCapture(a_, &graph_), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable_, graph_, 0), cudaSuccess);
  put(b_, "before", {{data_, 64, true}});
  cudaEventRecord(fork_, b_);
  cudaGraphLaunch(executable_, a_);
  cudaStreamWaitEvent(b_, join_, 0);
  put(b_, "after", {{data_, 64, false}});
  drain();
  EXPECT_TRUE(reports_.empty()) << reports_[0].text;
  EXPECT_LT(place("before"), place("captured"));
  EXPECT_LT(place("captured"), place("after"));
  put(b_, "too early", {{data_, 64, true}});
  drain();
  EXPECT_EQ(reports_.size(), 0u) << "the host has waited";
  cudaGraphLaunch(executable_, a_);
  cudaStreamWaitEvent(b_, join_, 0);
  put(b_, "beside the rest", {{data_, 64, true}});
  drain();
  EXPECT_EQ(reports_.size(), 1u);
}

TEST_F(Graph, ExternalEventsAreForCapturesAlone) {
  EXPECT_EQ(cudaEventRecordWithFlags(join_, a_, cudaEventRecordExternal), cudaErrorInvalidValue);
  EXPECT_EQ(cudaStreamWaitEvent(a_, join_, cudaEventWaitExternal), cudaErrorInvalidValue);
}

TEST_F(Graph, AllowsUnsafeCallsInRelaxedCapture) {
  begin(cudaStreamCaptureModeRelaxed);
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, 16), cudaSuccess);
  EXPECT_EQ(cudaFree(data), cudaSuccess);
  EXPECT_EQ(cudaStreamEndCapture(a_, &graph_), cudaSuccess);
}

TEST_F(Graph, IsDisturbedByOtherThreadsOnlyInGlobalCapture) {
  for (const auto mode : {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeGlobal}) {
    begin(mode);
    cudaError_t status = cudaSuccess;
    std::thread([&] { status = cudaEventQuery(fork_); }).join();
    const bool is_global = mode == cudaStreamCaptureModeGlobal;
    EXPECT_EQ(status, is_global ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(a_, &graph),
              is_global ? cudaErrorStreamCaptureInvalidated : cudaSuccess);
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
}

TEST_F(Graph, MustJoinWhatItForked) {
  begin();
  cudaEventRecord(fork_, a_);
  cudaStreamWaitEvent(b_, fork_, 0);
  put(b_, "side");
  EXPECT_EQ(cudaStreamEndCapture(b_, &graph_), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(cudaStreamEndCapture(a_, &graph_), cudaErrorStreamCaptureUnjoined);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  EXPECT_EQ(cudaStreamIsCapturing(b_, &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
}

TEST_F(Graph, CannotWaitForWorkOutside) {
  put(b_, "outside");
  cudaEventRecord(join_, b_);
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(a_, join_, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(cudaStreamEndCapture(a_, &graph_), cudaErrorStreamCaptureInvalidated);
}

TEST_F(Graph, CannotBeCapturedOnTheLegacyStreamNorBesideItsUse) {
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal),
            cudaErrorStreamCaptureUnsupported);
  const cudaStream_t blocking = make_stream(cudaStreamDefault);
  ASSERT_EQ(cudaStreamBeginCapture(blocking, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(enqueue(nullptr, {.name = "legacy"}), cudaErrorStreamCaptureImplicit);
  EXPECT_EQ(cudaStreamEndCapture(blocking, &graph_), cudaErrorStreamCaptureInvalidated);
}

TEST_F(Graph, IsUpdatedWithOneOfTheSameShape) {
  capture_fork();
  ASSERT_EQ(cudaGraphInstantiate(&executable_, graph_, 0), cudaSuccess);
  cudaGraphDestroy(graph_);
  capture_fork();
  cudaGraphExecUpdateResultInfo info{};
  EXPECT_EQ(cudaGraphExecUpdate(executable_, graph_, &info), cudaSuccess);
  cudaGraphDestroy(graph_);
  begin();
  put(a_, "first");
  ASSERT_EQ(cudaStreamEndCapture(a_, &graph_), cudaSuccess);
  EXPECT_EQ(cudaGraphExecUpdate(executable_, graph_, &info), cudaErrorGraphExecUpdateFailure);
  EXPECT_EQ(info.result, cudaGraphExecUpdateErrorTopologyChanged);
}

TEST_F(Graph, IsLaunchedBehindItsLastLaunchOnWhateverStream) {
  capture_fork();
  ASSERT_EQ(cudaGraphInstantiate(&executable_, graph_, 0), cudaSuccess);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(cudaGraphLaunch(executable_, a_), cudaSuccess);
    ASSERT_EQ(cudaGraphLaunch(executable_, b_), cudaSuccess);
  }
  drain();
  EXPECT_EQ(ran_.size(), 24u);
  for (std::size_t i = 0; i < ran_.size(); i += 4) {
    EXPECT_EQ(ran_[i], "first");
    EXPECT_EQ(ran_[i + 3], "last");
  }
  EXPECT_TRUE(reports_.empty());
}

TEST_F(Graph, BecomesPartOfAnotherWhoseCaptureLaunchesIt) {
  capture_fork();
  ASSERT_EQ(cudaGraphInstantiate(&executable_, graph_, 0), cudaSuccess);
  begin();
  put(a_, "outer");
  ASSERT_EQ(cudaGraphLaunch(executable_, a_), cudaSuccess);
  put(a_, "end");
  cudaGraph_t outer = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(a_, &outer), cudaSuccess);
  cudaGraphExec_t both = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&both, outer, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(both, a_), cudaSuccess);
  drain();
  ASSERT_EQ(ran_.size(), 6u);
  EXPECT_EQ(ran_.front(), "outer");
  EXPECT_EQ(ran_.back(), "end");
  cudaGraphExecDestroy(both);
  cudaGraphDestroy(outer);
}

/// A copy from a variable of this function, which a graph reads when it is launched.
[[gnu::noinline]] void copy_own_variable(char* to, cudaStream_t stream) {
  volatile int value = 5;
  EXPECT_EQ(cudaMemcpyAsync(to, const_cast<const int*>(&value), sizeof value,
                            cudaMemcpyHostToDevice, stream),
            cudaSuccess);
}

TEST_F(Graph, ThatReadsTheStackOfAFunctionThatHasReturnedIsReported) {
  begin();
  copy_own_variable(data_, a_);
  ASSERT_EQ(cudaStreamEndCapture(a_, &graph_), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable_, graph_, 0), cudaSuccess);
  EXPECT_EQ(reports_.size(), 0u);
  ASSERT_EQ(cudaGraphLaunch(executable_, a_), cudaSuccess);
  drain();
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0].finding, Finding::use_after_free);
  for (const char* words : {"cudaMemcpyAsync in a graph reads 4 bytes of the host's stack",
                            "captured at copy_own_variable"})
    EXPECT_NE(reports_[0].text.find(words), std::string::npos) << reports_[0].text;
}

TEST_F(Graph, MayReadAndWriteVariablesOfFunctionsThatHaveNotReturned) {
  const int value = 5;
  int back = 0;
  begin();
  cudaMemcpyAsync(data_, &value, sizeof value, cudaMemcpyHostToDevice, a_);
  cudaMemcpyAsync(&back, data_, sizeof back, cudaMemcpyDeviceToHost, a_);
  ASSERT_EQ(cudaStreamEndCapture(a_, &graph_), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable_, graph_, 0), cudaSuccess);
  const auto launch = [&] { EXPECT_EQ(cudaGraphLaunch(executable_, a_), cudaSuccess); };
  launch();
  std::thread(launch).join();
  drain();
  EXPECT_EQ(back, 5);
  EXPECT_EQ(reports_.size(), 0u);
}

}  // namespace
}  // namespace simgpu
