#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>

/// @file
/// A rank as a process: rank_program SCENARIO RANK SIZE FILE, where the file carries the unique id.
/// Exits with 0 if all was as the scenario wants it.

namespace {

using namespace std::chrono_literals;

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "failed: %s (%s)\n", what, ncclGetLastError(nullptr));
  std::_Exit(1);
}
#define REQUIRE(condition) require(condition, #condition)

struct Job {
  int rank = 0, size = 1;
  std::string file;
  ncclComm_t communicator = nullptr;
  cudaStream_t stream = nullptr;

  ncclUniqueId exchange_id() const {
    ncclUniqueId id{};
    if (rank == 0) {
      REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
      std::ofstream(file + ".part", std::ios::binary).write(id.internal, sizeof id.internal);
      REQUIRE(std::rename((file + ".part").c_str(), file.c_str()) == 0);
      return id;
    }
    std::ifstream in(file, std::ios::binary);
    for (; !in; in.open(file, std::ios::binary)) std::this_thread::sleep_for(5ms);
    REQUIRE(static_cast<bool>(in.read(id.internal, sizeof id.internal)));
    return id;
  }

  void join() {
    const ncclUniqueId id = exchange_id();
    REQUIRE(cudaSetDevice(rank) == cudaSuccess);
    REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
    REQUIRE(ncclCommInitRank(&communicator, size, id, rank) == ncclSuccess);
  }

  void leave() {
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
    REQUIRE(ncclCommDestroy(communicator) == ncclSuccess);
    REQUIRE(cudaStreamDestroy(stream) == cudaSuccess);
  }

  void abort() {
    REQUIRE(ncclCommAbort(communicator) == ncclSuccess);
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  }
};

float* device_floats(const std::vector<float>& values) {
  void* data = nullptr;
  REQUIRE(cudaMalloc(&data, values.size() * sizeof(float)) == cudaSuccess);
  REQUIRE(cudaMemcpy(data, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice) ==
          cudaSuccess);
  return static_cast<float*>(data);
}

bool all_equal(const float* data, std::size_t count, float expected) {
  std::vector<float> values(count);
  REQUIRE(cudaMemcpy(values.data(), data, count * sizeof(float), cudaMemcpyDeviceToHost) ==
          cudaSuccess);
  for (const float value : values)
    if (value != expected) return false;
  return true;
}

void all_reduce(const Job& job, ncclComm_t communicator, float* data, std::size_t count) {
  REQUIRE(ncclAllReduce(data, data, count, ncclFloat32, ncclSum, communicator, job.stream) ==
          ncclSuccess);
}

void exchange_with_neighbours(const Job& job, float* from, float* to, std::size_t count) {
  const int next = (job.rank + 1) % job.size, before = (job.rank + job.size - 1) % job.size;
  REQUIRE(ncclGroupStart() == ncclSuccess);
  REQUIRE(ncclSend(from, count, ncclFloat32, next, job.communicator, job.stream) == ncclSuccess);
  REQUIRE(ncclRecv(to, count, ncclFloat32, before, job.communicator, job.stream) == ncclSuccess);
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  REQUIRE(cudaStreamSynchronize(job.stream) == cudaSuccess);
  REQUIRE(all_equal(to, count, static_cast<float>(before)));
}

// Collectives of all sizes, a split, sends.
void work(Job& job) {
  job.join();
  for (const std::size_t count : {1u, 1000u, 1'000'003u}) {
    float* const data = device_floats(std::vector<float>(count, static_cast<float>(job.rank)));
    float* const room = device_floats(std::vector<float>(count));
    exchange_with_neighbours(job, data, room, count);
    for (int i = 0; i < 40; ++i) all_reduce(job, job.communicator, room, count > 1000 ? 10 : count);
    all_reduce(job, job.communicator, data, count);
    REQUIRE(cudaStreamSynchronize(job.stream) == cudaSuccess);
    REQUIRE(all_equal(data, count, static_cast<float>(job.size * (job.size - 1) / 2)));
    REQUIRE(cudaFree(data) == cudaSuccess);
    REQUIRE(cudaFree(room) == cudaSuccess);
  }
  ncclComm_t half = nullptr;
  REQUIRE(ncclCommSplit(job.communicator, job.rank % 2, 0, &half, nullptr) == ncclSuccess);
  float* const one = device_floats({1});
  all_reduce(job, half, one, 1);
  REQUIRE(cudaStreamSynchronize(job.stream) == cudaSuccess);
  REQUIRE(all_equal(one, 1, static_cast<float>((job.size + 1 - job.rank % 2) / 2)));
  REQUIRE(cudaFree(one) == cudaSuccess);
  REQUIRE(ncclCommDestroy(half) == ncclSuccess);
  job.leave();
}

// The last rank is killed; the others learn of it.
void death(Job& job) {
  job.join();
  float* const data = device_floats({1});
  if (job.rank == job.size - 1) std::raise(SIGKILL);
  all_reduce(job, job.communicator, data, 1);
  ncclResult_t state = ncclSuccess;
  for (int i = 0; i < 5000 && state == ncclSuccess; ++i) {
    std::this_thread::sleep_for(1ms);
    REQUIRE(ncclCommGetAsyncError(job.communicator, &state) == ncclSuccess);
  }
  REQUIRE(state == ncclRemoteError);
  const std::string named = "the process of rank " + std::to_string(job.size - 1) + " ended";
  REQUIRE(std::strstr(ncclGetLastError(job.communicator), named.c_str()) != nullptr);
  REQUIRE(ncclAllReduce(data, data, 1, ncclFloat32, ncclSum, job.communicator, job.stream) ==
          ncclRemoteError);
  job.abort();
}

void mismatch(Job& job) {
  job.join();
  float* const data = device_floats(std::vector<float>(8));
  all_reduce(job, job.communicator, data, job.rank == 0 ? 4 : 5);
  std::this_thread::sleep_for(1500ms);
  job.abort();
}

// Rank 0 is alone with its call.
void absence(Job& job) {
  job.join();
  float* const data = device_floats({1});
  if (job.rank == 0) all_reduce(job, job.communicator, data, 1);
  std::this_thread::sleep_for(job.rank == 0 ? 2s : 4s);  // rank 1 is still there when rank 0 warns
  job.abort();
}

void forgotten(Job& job) {
  job.join();
  REQUIRE(cudaStreamDestroy(job.stream) == cudaSuccess);
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<void(Job&)>> scenarios{{"work", work},
                                                                   {"death", death},
                                                                   {"mismatch", mismatch},
                                                                   {"absence", absence},
                                                                   {"forgotten", forgotten}};
  require(argc == 5 && scenarios.contains(argv[1]), "usage: rank_program SCENARIO RANK SIZE FILE");
  Job job{.rank = std::atoi(argv[2]), .size = std::atoi(argv[3]), .file = argv[4]};
  scenarios.at(argv[1])(job);
  return 0;
}
