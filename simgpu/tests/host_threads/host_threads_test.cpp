#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <thread>

#include <gtest/gtest.h>
#include <semaphore.h>

#include "simgpu/simgpu.hpp"
#include "simgpu_fixture.hpp"

namespace simgpu {
namespace {

[[maybe_unused]] const int apart = ::setenv("LOCKSTEP_SIM_HOST_THREADS", "apart", 1);

/// One thread waits for the device, another one then uses the memory.
class HostThreads : public SimgpuTest {
 protected:
  void produce() {
    put(a_, "producer", {{data_, 1024, true}});
    cudaStreamSynchronize(a_);
  }
  void consume() { put(b_, "consumer", {{data_, 1024, false}}); }

  /// This thread produces; another one, which has run for long, consumes after `learn`.
  void produce_then(const std::function<void()>& tell, const std::function<void()>& learn) {
    std::atomic<bool> produced = false;
    std::thread other([&] {
      produced.wait(false);
      learn();
      consume();
    });
    produce();
    tell();
    produced = true;
    produced.notify_one();
    other.join();
    drain();
  }

  cudaStream_t a_ = make_stream(cudaStreamNonBlocking);
  cudaStream_t b_ = make_stream(cudaStreamNonBlocking);
  char* data_ = make_memory(1024);
};

void nothing() {}

TEST_F(HostThreads, KnowWhatTheyWaitedForThemselves) {
  produce();
  consume();
  drain();
  EXPECT_TRUE(reports_.empty());
}

TEST_F(HostThreads, DoNotKnowWhatAnotherOneWaitedFor) {
  produce_then(nothing, nothing);
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_EQ(reports_[0].finding, Finding::race);
}

TEST_F(HostThreads, LearnByAMutex) {
  std::mutex mutex;
  const auto pass = [&] { const std::lock_guard lock(mutex); };
  produce_then(pass, pass);
  EXPECT_TRUE(reports_.empty());
}

TEST_F(HostThreads, LearnNothingByAMutexOfOthers) {
  std::mutex mutex, other;
  produce_then([&] { const std::lock_guard lock(mutex); },
               [&] { const std::lock_guard lock(other); });
  EXPECT_EQ(reports_.size(), 1u);
}

TEST_F(HostThreads, LearnByASharedMutex) {
  std::shared_mutex mutex;
  produce_then([&] { const std::unique_lock lock(mutex); },
               [&] { const std::shared_lock lock(mutex); });
  EXPECT_TRUE(reports_.empty());
}

TEST_F(HostThreads, LearnByASemaphore) {
  sem_t semaphore;
  sem_init(&semaphore, 0, 0);
  produce_then([&] { sem_post(&semaphore); }, [&] { sem_wait(&semaphore); });
  EXPECT_TRUE(reports_.empty());
  sem_destroy(&semaphore);
}

TEST_F(HostThreads, LearnByACallOnce) {
  std::once_flag once;
  const auto pass = [&] { std::call_once(once, [] {}); };
  produce_then(pass, pass);
  EXPECT_TRUE(reports_.empty());
}

TEST_F(HostThreads, LearnByWhatTheProgramSays) {
  produce_then([&] { hand_over(this); }, [&] { take_over(this); });
  EXPECT_TRUE(reports_.empty());
}

TEST_F(HostThreads, LearnByAConditionVariable) {
  std::mutex mutex;
  std::condition_variable changed;
  bool waits = false, produced = false;
  std::thread other([&] {
    std::unique_lock lock(mutex);
    waits = true;
    changed.notify_all();
    changed.wait(lock, [&] { return produced; });
    consume();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return waits; });
  produce();
  produced = true;
  changed.notify_all();
  lock.unlock();
  other.join();
  drain();
  EXPECT_TRUE(reports_.empty());
}

TEST_F(HostThreads, LearnByStartingAndByJoining) {
  produce();
  std::thread([&] { consume(); }).join();
  put(b_, "second producer", {{data_, 1024, true}});
  std::thread([&] { cudaStreamSynchronize(b_); }).join();
  put(a_, "second consumer", {{data_, 1024, false}});
  drain();
  EXPECT_TRUE(reports_.empty());
}

TEST_F(HostThreads, LearnFromACallback) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
  } shared;
  put(a_, "producer", {{data_, 1024, true}});
  cudaLaunchHostFunc(
      a_,
      [](void* to) {
        auto& told = *static_cast<Shared*>(to);
        const std::lock_guard lock(told.mutex);
        told.done = true;
        told.changed.notify_all();
      },
      &shared);
  {
    std::unique_lock lock(shared.mutex);
    shared.changed.wait(lock, [&] { return shared.done; });
  }
  consume();
  drain();
  EXPECT_TRUE(reports_.empty());
}

TEST_F(HostThreads, ReuseNoClockComponentOfAStreamThatTheyDoNotKnowToBeOver) {
  cudaStream_t gone = nullptr;
  cudaStreamCreateWithFlags(&gone, cudaStreamNonBlocking);
  put(gone, "producer", {{data_, 1024, true}});
  cudaStreamDestroy(gone);
  cudaStream_t fresh = make_stream(cudaStreamNonBlocking);
  put(fresh, "consumer", {{data_, 1024, false}});
  drain();
  EXPECT_EQ(reports_.size(), 1u);
}

}  // namespace
}  // namespace simgpu
