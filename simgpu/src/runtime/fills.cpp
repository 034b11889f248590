#include <utility>

#include "cuda_runtime_api.h"
#include "engine/entry.hpp"
#include "memory/layout.hpp"
#include "runtime/transfers.hpp"

/// @file
/// cudaMemset and its like. None of them makes the host wait.

namespace simgpu {
namespace {

cudaError_t fill_async(const char* name, const Fill& fill, cudaStream_t stream) {
  if (fill.width == 0 || fill.height == 0) return cudaSuccess;
  if (!is_tracked(fill.data)) return cudaErrorInvalidValue;
  if (fill.height > 1 && fill.pitch < fill.width) return cudaErrorInvalidPitchValue;
  Operation operation = fill_operation(name, fill);
  if (const cudaError_t status = check_ranges(operation); status != cudaSuccess) return status;
  return enqueue(stream, std::move(operation));
}

}  // namespace
}  // namespace simgpu

using simgpu::Allowed;
using simgpu::EntryPoint;

cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  static EntryPoint entry("cudaMemset", Allowed::not_capturing);
  return entry.call([&] {
    return simgpu::fill_async("cudaMemset", {data, bytes, value, bytes}, nullptr);
  });
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  static EntryPoint entry("cudaMemsetAsync");
  return entry.call([&] {
    return simgpu::fill_async("cudaMemsetAsync", {data, bytes, value, bytes}, stream);
  });
}

cudaError_t cudaMemset2D(void* data, std::size_t pitch, int value, std::size_t width,
                         std::size_t height) {
  static EntryPoint entry("cudaMemset2D", Allowed::not_capturing);
  return entry.call([&] {
    return simgpu::fill_async("cudaMemset2D", {data, pitch, value, width, height}, nullptr);
  });
}

cudaError_t cudaMemset2DAsync(void* data, std::size_t pitch, int value, std::size_t width,
                              std::size_t height, cudaStream_t stream) {
  static EntryPoint entry("cudaMemset2DAsync");
  return entry.call([&] {
    return simgpu::fill_async("cudaMemset2DAsync", {data, pitch, value, width, height}, stream);
  });
}
