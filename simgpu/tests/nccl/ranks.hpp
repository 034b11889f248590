#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <nccl.h>

/// @file
/// Ranks of a communicator on simulated GPUs, for tests.

namespace simgpu::testing {

/// One rank: its communicator and a stream, on the device of its number.
struct Rank {
  int rank = 0, size = 1;
  ncclComm_t communicator = nullptr;
  cudaStream_t stream = nullptr;

  /// Joins, on the calling thread. `id` is the same on all ranks.
  static Rank join(int rank, int size, const ncclUniqueId& id) {
    Rank self{.rank = rank, .size = size};
    EXPECT_EQ(cudaSetDevice(rank), cudaSuccess);
    EXPECT_EQ(cudaStreamCreateWithFlags(&self.stream, cudaStreamNonBlocking), cudaSuccess);
    EXPECT_EQ(ncclCommInitRank(&self.communicator, size, id, rank), ncclSuccess)
        << ncclGetLastError(nullptr);
    return self;
  }
  /// Waits for the stream.
  void synchronize() const { EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess); }
  /// Polls the stream for up to `milliseconds`. @return true if its work is done
  bool finishes_within(int milliseconds) const {
    for (int i = 0; i < milliseconds; ++i) {
      if (cudaStreamQuery(stream) == cudaSuccess) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }
  /// Ends the rank in good order. A communicator that was aborted is null by then.
  void leave() {
    synchronize();
    if (communicator) {
      EXPECT_EQ(ncclCommDestroy(communicator), ncclSuccess);
    }
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }
};

/// Runs the body once on each rank, as threads of this process.
inline void with_threads(int size, const std::function<void(Rank&)>& body) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      Rank self = Rank::join(rank, size, id);
      if (self.communicator) body(self);
      self.leave();
    });
  for (std::thread& thread : threads) thread.join();
}

/// Elements in device memory.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : count_(values.size()) {
    EXPECT_EQ(cudaMalloc(&data_, bytes()), cudaSuccess);
    if (count_ > 0) {
      EXPECT_EQ(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice), cudaSuccess);
    }
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { static_cast<void>(cudaFree(data_)); }

  T* data() const { return static_cast<T*>(data_); }
  std::size_t count() const { return count_; }
  /// What is there; synchronise first.
  std::vector<T> download() const {
    std::vector<T> values(count_);
    if (count_ > 0) {
      EXPECT_EQ(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost), cudaSuccess);
    }
    return values;
  }

 private:
  std::size_t bytes() const { return count_ * sizeof(T); }

  void* data_ = nullptr;
  std::size_t count_;
};

}  // namespace simgpu::testing
