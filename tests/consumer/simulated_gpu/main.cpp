// Doubles numbers on one stream and copies them back on another. With the argument "race" the
// second stream does not wait for the first.
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <vector>

#include "doubling.hpp"

namespace {

void check(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::cerr << cudaGetErrorString(status) << '\n';
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const bool race = argc > 1 && std::strcmp(argv[1], "race") == 0;
  std::vector<float> numbers(1000, 21);
  const std::size_t bytes = numbers.size() * sizeof(float);
  void* data = nullptr;
  cudaStream_t compute = nullptr, copies = nullptr;
  cudaEvent_t doubled = nullptr;
  check(cudaMalloc(&data, bytes));
  check(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking));
  check(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking));
  check(cudaEventCreateWithFlags(&doubled, cudaEventDisableTiming));

  check(cudaMemcpy(data, numbers.data(), bytes, cudaMemcpyHostToDevice));
  check(twice(static_cast<float*>(data), 1000, compute));
  check(cudaEventRecord(doubled, compute));
  if (!race) check(cudaStreamWaitEvent(copies, doubled, 0));
  check(cudaMemcpyAsync(numbers.data(), data, bytes, cudaMemcpyDeviceToHost, copies));
  check(cudaDeviceSynchronize());

  check(cudaEventDestroy(doubled));
  check(cudaStreamDestroy(copies));
  check(cudaStreamDestroy(compute));
  check(cudaFree(data));
  return race || numbers[999] == 42 ? 0 : 1;
}
