#pragma once

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/report.hpp"
#include "cuda_runtime_api.h"
#include "engine/operation.hpp"

/// @file
/// A test on the simulated GPU: collects the findings, and cleans up what it made.

namespace simgpu {

class SimgpuTest : public ::testing::Test {
 protected:
  SimgpuTest() {
    set_report_sink([this](const Report& report) { reports_.push_back(report); });
  }

  ~SimgpuTest() override {
    drain();
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
    for (void* data : memory_) cudaFree(data);
    set_report_sink({});
  }

  cudaStream_t make_stream(unsigned flags) {
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, flags), cudaSuccess);
    streams_.push_back(stream);
    return stream;
  }

  cudaEvent_t make_event(unsigned flags = cudaEventDefault) {
    cudaEvent_t event = nullptr;
    EXPECT_EQ(cudaEventCreateWithFlags(&event, flags), cudaSuccess);
    events_.push_back(event);
    return event;
  }

  char* make_memory(std::size_t bytes) {
    void* data = nullptr;
    EXPECT_EQ(cudaMalloc(&data, bytes), cudaSuccess);
    memory_.push_back(data);
    return static_cast<char*>(data);
  }

  /// Queues an operation that says what it touches, and notes its name when it runs.
  void put(cudaStream_t stream, std::string name, std::vector<Access> accesses = {}) {
    EXPECT_EQ(enqueue(stream, {.name = name,
                               .site = CallSite::here(),
                               .accesses = std::move(accesses),
                               .run =
                                   [this, name] {
                                     ran_.push_back(name);
                                     return true;
                                   }}),
              cudaSuccess);
  }

  /// The same for one that finds out what it touches when it runs.
  void put_kernel(cudaStream_t stream, std::string name, std::vector<Access> bounds,
                  std::vector<Access> truth) {
    EXPECT_EQ(enqueue(stream, {.name = std::move(name),
                               .site = CallSite::here(),
                               .accesses = std::move(bounds),
                               .accesses_are_bounds = true,
                               .run =
                                   [truth = std::move(truth)] {
                                     touched(truth);
                                     return true;
                                   }}),
              cudaSuccess);
  }

  static void drain() { cudaDeviceSynchronize(); }

  std::vector<Report> reports_;
  std::vector<std::string> ran_;  ///< on the executor thread; to be read after a synchronisation

 private:
  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> events_;
  std::vector<void*> memory_;
};

}  // namespace simgpu
