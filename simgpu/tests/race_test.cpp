#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "cuda_runtime_api.h"
#include "engine/host.hpp"
#include "engine/operation.hpp"
#include "simgpu_fixture.hpp"

namespace simgpu::test {
namespace {

class Race : public SimgpuTest {
 protected:
  cudaStream_t a_ = make_stream(cudaStreamNonBlocking);
  cudaStream_t b_ = make_stream(cudaStreamNonBlocking);
  cudaEvent_t event_ = make_event();
  char* data_ = make_memory(1024);
};

TEST_F(Race, IsFoundBetweenStreamsWithoutAnEvent) {
  put(a_, "producer", {{data_, 1024, true}});
  put(b_, "consumer", {{data_ + 100, 8, false}});
  drain();
  ASSERT_EQ(reports_.size(), 1u);
  const std::string& text = reports_[0].text;
  EXPECT_EQ(reports_[0].finding, Finding::race);
  for (const char* part : {"producer", "consumer", "race_test.cpp", "8 bytes", "wait for stream",
                           "record an event after producer"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST_F(Race, IsNoneWhereAnEventOrdersTheStreams) {
  put(a_, "producer", {{data_, 1024, true}});
  cudaEventRecord(event_, a_);
  cudaStreamWaitEvent(b_, event_, 0);
  put(b_, "consumer", {{data_, 1024, false}});
  drain();
  EXPECT_TRUE(reports_.empty());
}

TEST_F(Race, IsFoundWhereTheEventWasRecordedTooEarly) {
  cudaEventRecord(event_, a_);
  put(a_, "producer", {{data_, 1024, true}});
  cudaStreamWaitEvent(b_, event_, 0);
  put(b_, "consumer", {{data_, 1024, false}});
  drain();
  EXPECT_EQ(reports_.size(), 1u);
}

TEST_F(Race, OfAWaitUsesTheRecordAtTheTimeOfTheWait) {
  put(a_, "producer", {{data_, 1024, true}});
  cudaEventRecord(event_, a_);
  cudaStreamWaitEvent(b_, event_, 0);
  cudaEventRecord(event_, b_);  // recorded again elsewhere: the wait stands
  put(b_, "consumer", {{data_, 1024, false}});
  drain();
  EXPECT_TRUE(reports_.empty());
}

TEST_F(Race, IsNoneBetweenReads) {
  put(a_, "one", {{data_, 1024, false}});
  put(b_, "two", {{data_, 1024, false}});
  drain();
  EXPECT_TRUE(reports_.empty());
}

TEST_F(Race, IsNoneBetweenNeighbours) {
  put(a_, "one", {{data_, 512, true}});
  put(b_, "two", {{data_ + 512, 512, true}});
  drain();
  EXPECT_TRUE(reports_.empty());
}

TEST_F(Race, OfAWriteAfterAReadIsFound) {
  put(a_, "reader", {{data_, 1024, false}});
  put(b_, "writer", {{data_, 4, true}});
  drain();
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_NE(reports_[0].text.find("reader reads it"), std::string::npos) << reports_[0].text;
}

TEST_F(Race, IsNoneOnceTheHostHasSynchronised) {
  put(a_, "producer", {{data_, 1024, true}});
  cudaStreamSynchronize(a_);
  put(b_, "consumer", {{data_, 1024, true}});
  cudaEventRecord(event_, b_);
  cudaEventSynchronize(event_);
  put(a_, "again", {{data_, 1024, true}});
  cudaDeviceSynchronize();
  put(b_, "more", {{data_, 1024, true}});
  drain();
  EXPECT_TRUE(reports_.empty());
}

TEST_F(Race, IsNoneOnceAQueryHasSaidDone) {
  put(a_, "producer", {{data_, 1024, true}});
  cudaEventRecord(event_, a_);
  while (cudaEventQuery(event_) == cudaErrorNotReady) {
  }
  put(b_, "consumer", {{data_, 1024, true}});
  drain();
  EXPECT_TRUE(reports_.empty());
}

TEST_F(Race, IsNoneThroughTheLegacyStream) {
  const cudaStream_t blocking = make_stream(cudaStreamDefault);
  put(blocking, "one", {{data_, 1024, true}});
  put(nullptr, "two", {{data_, 1024, true}});
  put(blocking, "three", {{data_, 1024, true}});
  drain();
  EXPECT_TRUE(reports_.empty());
}

TEST_F(Race, OfTheLegacyStreamWithANonBlockingOneIsFound) {
  put(nullptr, "one", {{data_, 1024, true}});
  put(a_, "two", {{data_, 1024, true}});
  drain();
  EXPECT_EQ(reports_.size(), 1u);
}

TEST_F(Race, IsJudgedByWhatKernelsReallyTouch) {
  const Access whole{data_, 1024, true};
  put_kernel(a_, "left", {whole}, {{data_, 512, true}});
  put_kernel(b_, "right", {whole}, {{data_ + 512, 512, true}});
  put_kernel(b_, "both", {whole}, {{data_ + 256, 512, true}});
  drain();
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_NE(reports_[0].text.find("256 bytes"), std::string::npos) << reports_[0].text;
}

// The kernel's accesses become known after those of a copy that follows it.
TEST_F(Race, IsNoneWithACopyThatFollowsAKernel) {
  put_kernel(a_, "kernel", {{data_, 1024, true}}, {{data_, 1024, true}});
  put(a_, "copy", {{data_, 1024, true}});
  cudaEventRecord(event_, a_);
  cudaStreamWaitEvent(b_, event_, 0);
  put_kernel(b_, "reader", {{data_, 1024, true}}, {{data_, 1024, false}});
  drain();
  EXPECT_TRUE(reports_.empty());
}

// Each read covers the one before; what the second kernel does becomes known after both, and it is
// ordered against the second alone.
TEST_F(Race, IsFoundWithAnAccessThatALaterOneCovers) {
  std::atomic<bool> may_run = false;
  EXPECT_EQ(enqueue(a_, {.name = "gate",
                         .run =
                             [&] {
                               while (!may_run) std::this_thread::yield();
                               return true;
                             }}),
            cudaSuccess);
  for (const char* const name : {"first kernel", "second kernel"}) {
    put_kernel(a_, name, {{data_, 1024, true}}, {{data_, 1024, true}});
    cudaEventRecord(event_, a_);
    cudaStreamWaitEvent(b_, event_, 0);
    put(b_, "reader", {{data_, 1024, false}});
  }
  may_run = true;
  drain();
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_NE(reports_[0].text.find("second  second kernel writes it"), std::string::npos)
      << reports_[0].text;
}

// The kernel's accesses become known after those of the copy that was queued after it.
TEST_F(Race, IsToldInTheOrderOfTheCalls) {
  put_kernel(a_, "kernel", {{data_, 1024, true}}, {{data_, 1024, false}});
  put(b_, "copy", {{data_, 1024, true}});
  drain();
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0].text.find("  first   kernel reads it on stream"), 0u) << reports_[0].text;
}

TEST_F(Race, WithTheHostIsFoundUntilItWaits) {
  put(a_, "copy", {{data_, 1024, true}});
  host_access(data_, 4, false, CallSite::here());
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0].finding, Finding::host_race);
  EXPECT_NE(reports_[0].text.find("makes the host wait"), std::string::npos) << reports_[0].text;
  cudaStreamSynchronize(a_);
  host_access(data_, 4, true, CallSite::here());
  put(a_, "next", {{data_, 1024, true}});
  drain();
  EXPECT_EQ(reports_.size(), 1u);
}

TEST_F(Race, OfAHostWriteUnderAQueuedReadIsFound) {
  put(a_, "copy", {{data_, 1024, false}});
  host_access(data_, 4, true, CallSite::here());
  EXPECT_EQ(reports_.size(), 1u);
}

// Neither call is said to wait for work that uses the memory.
TEST_F(Race, OfPinnedMemoryThatIsGivenBackUnderACopyIsFound) {
  for (const bool is_late : {false, true}) {
    reports_.clear();
    void* pinned = nullptr;
    std::vector<char> own(4096);
    ASSERT_EQ(cudaMallocHost(&pinned, 64), cudaSuccess);
    ASSERT_EQ(cudaHostRegister(own.data(), own.size(), cudaHostRegisterDefault), cudaSuccess);
    cudaMemcpyAsync(data_, pinned, 64, cudaMemcpyHostToDevice, a_);
    cudaMemcpyAsync(data_ + 64, own.data() + 8, 64, cudaMemcpyHostToDevice, a_);
    if (is_late) cudaStreamSynchronize(a_);
    EXPECT_EQ(cudaHostUnregister(own.data()), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
    drain();
    ASSERT_EQ(reports_.size(), is_late ? 0u : 2u);
    for (std::size_t i = 0; i < reports_.size(); ++i) {
      EXPECT_EQ(reports_[i].finding, Finding::host_race);
      for (const char* part : {"first   cudaMemcpyAsync reads it on stream", "race_test.cpp",
                               i == 0 ? "second  cudaHostUnregister gives it back on the host"
                                      : "second  cudaFreeHost gives it back on the host",
                               "nothing makes the host wait for stream", "64 bytes of"})
        EXPECT_NE(reports_[i].text.find(part), std::string::npos) << part << reports_[i].text;
    }
  }
}

// Whoever waits for a device waits for the work of streams, too, that are gone by then.
TEST_F(Race, WaitingForADeviceEndsTheWorkOfDestroyedStreams) {
  for (int round = 0; round < 3; ++round) {
    void* pinned = nullptr;
    ASSERT_EQ(cudaMallocHost(&pinned, 64), cudaSuccess);
    for (int i = 0; i < 2; ++i) {
      cudaStream_t gone = nullptr;
      ASSERT_EQ(cudaStreamCreateWithFlags(&gone, cudaStreamNonBlocking), cudaSuccess);
      if (i == 1) cudaMemcpyAsync(data_, pinned, 64, cudaMemcpyHostToDevice, gone);
      cudaStreamDestroy(gone);
    }
    cudaDeviceSynchronize();
    EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  }
  EXPECT_EQ(reports_.size(), 0u);
}

TEST_F(Race, IsForgottenWithTheMemory) {
  put(a_, "one", {{data_, 1024, true}});
  forget_accesses(data_, 1024);
  put(b_, "two", {{data_, 1024, true}});
  drain();
  EXPECT_TRUE(reports_.empty());
}

TEST_F(Race, IsReportedOncePerPlace) {
  for (int i = 0; i < 5; ++i) {
    put(a_, "one", {{data_, 1024, true}});
    put(b_, "two", {{data_, 1024, true}});
  }
  drain();
  EXPECT_LE(reports_.size(), 2u);
}

// What the threads of a host tell each other is not seen, so that one clock serves them all: the
// second thread may have learned what the first one waited for. The race that is lost if it has not
// is found with LOCKSTEP_SIM_HOST_THREADS=apart (host_threads/host_threads_test.cpp).
TEST_F(Race, IsNoneAfterAnotherThreadOfTheHostHasWaited) {
  put(a_, "producer", {{data_, 1024, true}});
  std::thread([&] { cudaStreamSynchronize(a_); }).join();
  put(b_, "consumer", {{data_, 1024, false}});
  drain();
  EXPECT_TRUE(reports_.empty());
}

// As far as they do not wait, threads make no order.
TEST_F(Race, IsFoundBetweenThreadsOfTheHost) {
  std::thread([&] { put(a_, "producer", {{data_, 1024, true}}); }).join();
  std::thread([&] { put(b_, "consumer", {{data_, 1024, false}}); }).join();
  drain();
  EXPECT_EQ(reports_.size(), 1u);
}

}  // namespace
}  // namespace simgpu::test
