#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "kernel_run.hpp"
#include "lockstep/memory/block_observer.hpp"
#include "matmul.hpp"
#include "profile/records.hpp"

// What LOCKSTEP_SIM_PROFILE tells, in a process that has it. CMake runs this with all of the work
// done, with some of it, and with none.

namespace simgpu::test {
namespace {

using nlohmann::json;
using testing::executes;
using testing::newest;
using testing::records;

// Half of the threads read two elements each, and write one.
__global__ void add_halves(const float* from, float* to, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count && i % 8 < 4) to[i] = from[i] + from[count - 1 - i];
}

TEST(Profile, BeginsWithTheProcess) {
  const std::vector<json> all = records();
  ASSERT_FALSE(all.empty());
  EXPECT_EQ(all[0]["profile"], 1);
  EXPECT_EQ(all[0]["ranks"], 1);
}

TEST(Profile, TellsWhatAKernelReadAndWrote) {
  constexpr int count = 64 * 256;
  const DeviceArray<float> from(std::vector<float>(count, 1.0F));
  const DeviceArray<float> to(count);
  ASSERT_EQ(run(64, 256, 0, add_halves, from.data(), to.data(), count), cudaSuccess);
  const json record = newest("kernel");
  EXPECT_NE(record["name"].get<std::string>().find("add_halves"), std::string::npos);
  EXPECT_NE(record["symbol"].get<std::string>().find("add_halves"), std::string::npos);
  EXPECT_NE(record["site"].get<std::string>().find("kernel_run.hpp"), std::string::npos);
  EXPECT_EQ(record["grid"], json({64, 1, 1}));
  EXPECT_EQ(record["block"], json({256, 1, 1}));
  EXPECT_EQ(record["blocks_run"], executes("none") ? 0 : executes("sample") ? 8 : 64);
  if (executes("none")) {  // what the arguments point into: `to` may be read, too
    EXPECT_EQ(record["read_distinct"], 2 * 4 * count);
    EXPECT_EQ(record["write_distinct"], 4 * count);
    return;
  }
  EXPECT_EQ(record["read_bytes"], 4 * count);
  EXPECT_EQ(record["write_bytes"], 4 * count / 2);
  EXPECT_EQ(record["write_distinct"], 4 * count / 2);
  if (executes("all")) {
    EXPECT_EQ(record["read_distinct"], 4 * count);
  }
}

// Elements `stride` apart, a vector each, and shared memory with threads two words apart.
__global__ void copy_with_stride(const float* from, float* to, int stride) {
  const auto i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  to[i * stride] = from[i * stride];
}
__global__ void copy_vectors(const float4* from, float4* to) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  float4 x = from[i];
  x.y += 1;
  to[i] = x;
}
__global__ void take_every_second(const float* from, float* to) {
  __shared__ float all[256];
  const unsigned i = threadIdx.x;
  all[i] = from[i];
  __syncthreads();
  if (i < 128) to[i] = all[2 * i];
}

TEST(Profile, TellsHowManySectorsRequestsNeed) {
  if (executes("none")) return;  // no thread asks for anything
  constexpr int count = 64 * 256;
  const DeviceArray<float> from(std::vector<float>(8 * count, 1.0F)), to(8 * count);
  for (const int stride : {1, 2, 8}) {
    ASSERT_EQ(run(64, 256, 0, copy_with_stride, from.data(), to.data(), stride), cudaSuccess);
    const json record = newest("kernel");
    EXPECT_EQ(record["requests"], 2 * count / 32);
    EXPECT_EQ(record["ideal_sectors"], 2 * count / 8);
    EXPECT_EQ(record["sectors"], 2 * count / 8 * stride);
  }
  ASSERT_EQ(run(64, 256, 0, copy_vectors, reinterpret_cast<const float4*>(from.data()),
                reinterpret_cast<float4*>(to.data())),
            cudaSuccess);
  const json record = newest("kernel");
  EXPECT_EQ(record["requests"], 2 * count / 32);
  EXPECT_EQ(record["sectors"], 2 * count / 2);
  EXPECT_EQ(record["sectors"], record["ideal_sectors"]);
}

TEST(Profile, TellsOfBankConflicts) {
  if (executes("none")) return;
  const DeviceArray<float> from(std::vector<float>(256, 1.0F)), to(256);
  ASSERT_EQ(run(1, 256, 0, take_every_second, from.data(), to.data()), cudaSuccess);
  const json record = newest("kernel");
  EXPECT_EQ(record["shared_requests"], 8 + 4);  // of as many warps
  EXPECT_EQ(record["shared_wavefronts"], 8 + 2 * 4);
}

__global__ void add_up(int* sums) {
  atomicAdd(sums + blockIdx.x, 1);
  if (threadIdx.x == 0) atomicMax(sums, 1);
}

TEST(Profile, TellsHowManyAtomicsThreadsMake) {
  if (executes("none")) return;
  const DeviceArray<int> sums(std::vector<int>(16));
  ASSERT_EQ(run(16, 64, 0, add_up, sums.data()), cudaSuccess);
  const json record = newest("kernel");
  EXPECT_EQ(record["atomics"], 16 * (64 + 1));
  EXPECT_EQ(record["requests"], 0);
}

TEST(Profile, TellsHowTheMatricesOfAProductLie) {
  const Product product{.m = 6, .n = 5, .k = 3, .transpose_a = true, .pad = 2};
  const Descriptors descriptors(product);
  void* arrays[3] = {};
  const std::size_t sizes[] = {product.a().size(1), product.b().size(1), product.d().size(1)};
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(cudaMalloc(&arrays[i], sizes[i] * sizeof(float)), cudaSuccess);
    ASSERT_EQ(cudaMemset(arrays[i], 0, sizes[i] * sizeof(float)), cudaSuccess);
  }
  const float alpha = 1, beta = 0;
  ASSERT_EQ(cublasLtMatmul(descriptors.handle, descriptors.operation, &alpha, arrays[0],
                           descriptors.a, arrays[1], descriptors.b, &beta, arrays[2], descriptors.c,
                           arrays[2], descriptors.d, nullptr, nullptr, 0, nullptr),
            CUBLAS_STATUS_SUCCESS);
  const json record = newest("product");
  EXPECT_EQ(record["widths"], json({3, 3, 6, 6}));
  EXPECT_EQ(record["leading"], json({5, 5, 8, 8}));
  for (void* array : arrays) cudaFree(array);
}

TEST(Profile, TellsOfCopiesAndFills) {
  const DeviceArray<float> a(std::vector<float>(1024, 1.0F)), b(1024);
  EXPECT_EQ(newest("copy")["direction"], "h2d");
  EXPECT_EQ(newest("copy")["bytes"], 4096);
  EXPECT_EQ(newest("copy")["pinned"], false);
  ASSERT_EQ(cudaMemcpyAsync(b.data(), a.data(), 512, cudaMemcpyDeviceToDevice), cudaSuccess);
  EXPECT_EQ(newest("copy")["direction"], "d2d");
  ASSERT_EQ(cudaMemsetAsync(b.data(), 0, 4096, nullptr), cudaSuccess);
  EXPECT_EQ(newest("memset")["bytes"], 4096);
  b.download();
  EXPECT_EQ(newest("copy")["direction"], "d2h");
}

TEST(Profile, TellsWhatTheLegacyStreamHolds) {
  const DeviceArray<float> memory(1024);
  cudaStream_t blocking = nullptr;
  ASSERT_EQ(cudaStreamCreate(&blocking), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(memory.data(), 0, 4096, blocking), cudaSuccess);
  const json first = newest("memset");
  ASSERT_EQ(cudaMemsetAsync(memory.data(), 0, 4096, nullptr), cudaSuccess);
  const json second = newest("memset");
  ASSERT_EQ(cudaMemsetAsync(memory.data(), 0, 4096, blocking), cudaSuccess);
  EXPECT_EQ(second["follows"], json({first["id"]}));
  EXPECT_EQ(newest("memset")["follows"], json({second["id"]}));
  ASSERT_EQ(cudaStreamDestroy(blocking), cudaSuccess);
}

TEST(Profile, TellsWhatStreamsAndTheHostWaitFor) {
  cudaStream_t first = nullptr, second = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  for (int i = 1; i <= 2; ++i) {
    ASSERT_EQ(cudaEventRecord(event, first), cudaSuccess);
    ASSERT_EQ(cudaStreamWaitEvent(second, event, 0), cudaSuccess);
  }
  const json recorded = newest("event_record"), waits = newest("stream_wait");
  EXPECT_EQ(recorded["version"], 2);
  EXPECT_EQ(waits["version"], 2);
  EXPECT_EQ(waits["event"], recorded["event"]);
  EXPECT_NE(waits["stream"], recorded["stream"]);
  EXPECT_GT(waits["host_us"], recorded["host_us"]);
  ASSERT_EQ(cudaEventSynchronize(event), cudaSuccess);
  json wait;
  for (const json& record : records())
    if (record.value("name", "") == "cudaEventSynchronize") wait = record;
  EXPECT_EQ(wait["kind"], "host_wait");
  EXPECT_EQ(wait["event"], recorded["event"]);
  ASSERT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(newest("query")["event"], recorded["event"]);
  cudaEventDestroy(event);
  cudaStreamDestroy(first);
  cudaStreamDestroy(second);
}

TEST(Profile, AskingUntilAnEventIsDoneIsOneWait) {
  const DeviceArray<float> memory(1024);
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  const auto ask = [&] {
    for (int i = 0; i < 64; ++i)  // durations are drawn: some of these take more than a call
      EXPECT_EQ(cudaMemsetAsync(memory.data(), 0, 4096, stream), cudaSuccess);
    EXPECT_EQ(cudaEventRecord(event, stream), cudaSuccess);
    int asked = 1;
    for (; cudaEventQuery(event) == cudaErrorNotReady; ++asked)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return asked;
  };
  const int asked = ask();
  ASSERT_GT(asked, 1);
  const json recorded = newest("event_record");
  json wait;
  for (const json& record : records())
    if (record.value("name", "") == "cudaEventQuery") wait = record;
  EXPECT_EQ(wait["kind"], "host_wait");
  EXPECT_EQ(wait["id"].get<int>(), recorded["id"].get<int>() + 1);
  EXPECT_LT(wait["host_us"].get<double>() - recorded["host_us"].get<double>(), 2000 * asked);
  cudaEventDestroy(event);
  cudaStreamDestroy(stream);
}

// Its record says by name and memory that it waits.
TEST(Profile, HasOneRecordOfACopyThatReturnsOnceItIsDone) {
  const DeviceArray<float> memory(16);
  float values[16] = {};
  ASSERT_EQ(cudaMemcpy(memory.data(), values, sizeof values, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(values, memory.data(), sizeof values, cudaMemcpyDeviceToHost, nullptr),
            cudaSuccess);
  for (const json& record : records())
    if (record.value("kind", "") == "host_wait") {
      EXPECT_EQ(record["name"].get<std::string>().find("cudaMemcpy"), std::string::npos) << record;
    }
}

TEST(Profile, WaitingForAnotherThreadIsNoWork) {
  const DeviceArray<float> memory(1024);
  std::mutex mutex;
  std::condition_variable never;
  ASSERT_EQ(cudaMemsetAsync(memory.data(), 0, 4096, nullptr), cudaSuccess);
  {
    std::unique_lock lock(mutex);
    never.wait_for(lock, std::chrono::milliseconds(500));
  }
  ASSERT_EQ(cudaMemsetAsync(memory.data(), 1, 4096, nullptr), cudaSuccess);
  std::vector<json> fills;
  for (const json& record : records())
    if (record.value("kind", "") == "memset") fills.push_back(record);
  const double between =
      fills.back()["host_us"].get<double>() - fills[fills.size() - 2]["host_us"].get<double>();
  EXPECT_LT(between, 4e5);
}

// What the simulation keeps of a pool's blocks is work that a program on a GPU does not have.
TEST(Profile, WhatTheSimulationNotesOfAPoolsBlocksIsNoWork) {
  const lockstep::StreamRef stream{{lockstep::DeviceType::cuda, 0}, nullptr};
  const DeviceArray<float> memory(1024), pool(1024);
  const lockstep::MemoryBlock block{pool.data(), 4096};
  lockstep::BlockObserver& observer = *lockstep::block_observer();
  const auto fill = [&] {
    EXPECT_EQ(cudaMemsetAsync(memory.data(), 0, 4096, nullptr), cudaSuccess);
    return newest("memset")["host_us"].get<double>();
  };
  double share = 1;  // the least of some: another program may take the core at any moment
  for (int attempt = 0; attempt < 5 && share > 0.3; ++attempt) {
    const double before = fill();
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 500; ++i) {
      observer.allocated(block, 4000, stream);
      observer.freed(block, stream);
    }
    const std::chrono::duration<double, std::micro> taken =
        std::chrono::steady_clock::now() - start;
    share = std::min(share, (fill() - before) / taken.count());
  }
  EXPECT_LT(share, 0.3);
}

TEST(Profile, TellsTheNodesOfAGraphAndTheirOrder) {
  const DeviceArray<float> memory(1024), other_memory(1024);
  cudaStream_t stream = nullptr, other = nullptr;
  cudaEvent_t event = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(memory.data(), 0, 4096, stream), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(other_memory.data(), 1, 1024, other), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(memory.data(), 1, 2048, stream), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event, other), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(stream, event, 0), cudaSuccess);
  ASSERT_EQ(cudaMemsetAsync(memory.data(), 1, 512, stream), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(executable, stream), cudaSuccess);
  const json launch = newest("graph_launch");
  EXPECT_EQ(launch["nodes"], 4);
  std::map<int, json> nodes;  // by their bytes
  for (const json& record : records())
    if (record.value("graph_launch", json()) == launch["id"]) nodes[record["bytes"]] = record;
  ASSERT_EQ(nodes.size(), 4U);
  EXPECT_EQ(nodes[4096]["after"], json::array());
  EXPECT_EQ(nodes[1024]["after"], json({nodes[4096]["id"]}));
  EXPECT_EQ(nodes[2048]["after"], json({nodes[4096]["id"]}));
  EXPECT_EQ(nodes[512]["after"].size(), 2U);
  cudaEventDestroy(event);
  cudaStreamDestroy(other);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace simgpu::test
