#include <array>
#include <utility>

#include "base/coverage.hpp"
#include "engine/entry.hpp"
#include "engine/machine.hpp"

namespace simgpu {
namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

constexpr ErrorText texts[] = {
#define SIMGPU_ERROR(name, number, text) {name, #name, text},
#include "simgpu/cuda_errors.def"
#undef SIMGPU_ERROR
};

const ErrorText& text_of(cudaError_t error) {
  static constexpr ErrorText unknown{cudaErrorUnknown, "cudaErrorUnknown",
                                     "unrecognized error code"};
  for (const ErrorText& each : texts)
    if (each.error == error) return each;
  return unknown;
}

// A sticky error is everybody's last error, until the process ends.
cudaError_t last_error() {
  const cudaError_t sticky = Machine::instance().sticky_error;
  return sticky != cudaSuccess ? sticky : noted_error();
}

}  // namespace
}  // namespace simgpu

extern "C" {

cudaError_t cudaGetLastError() {
  static simgpu::EntryPoint entry("cudaGetLastError", simgpu::Allowed::always);
  cudaError_t error = cudaSuccess;
  const cudaError_t injected = entry.call([&] {
    error = simgpu::last_error();
    return cudaSuccess;
  });
  simgpu::clear_noted_error();
  return injected != cudaSuccess ? injected : error;
}

cudaError_t cudaPeekAtLastError() {
  static simgpu::EntryPoint entry("cudaPeekAtLastError", simgpu::Allowed::always);
  return entry.call([] { return simgpu::last_error(); });
}

const char* cudaGetErrorName(cudaError_t error) { return simgpu::text_of(error).name; }

const char* cudaGetErrorString(cudaError_t error) {
  static const simgpu::Covered noted("cudaGetErrorString");
  return simgpu::text_of(error).text;
}

}  // extern "C"
