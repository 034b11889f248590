#include "kernels/function_attributes.hpp"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "base/call_site.hpp"
#include "cuda_runtime_api.h"
#include "engine/entry.hpp"
#include "kernels/limits.hpp"

namespace simgpu {
namespace {

struct Settings {
  std::size_t dynamic_shared = DeviceLimits::shared_bytes;
  int carveout = -1;
  std::string name;
};

std::mutex mutex;

Settings& settings_of(const void* kernel) {
  static auto* const settings = new std::unordered_map<const void*, Settings>;
  return (*settings)[kernel];
}

cudaError_t set_attribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (!kernel) return cudaErrorInvalidDeviceFunction;
  const std::lock_guard lock(mutex);
  Settings& settings = settings_of(kernel);
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value < 0 || static_cast<std::size_t>(value) > DeviceLimits::shared_bytes_optin)
      return cudaErrorInvalidValue;
    settings.dynamic_shared = static_cast<std::size_t>(value);
  } else if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) {
    if (value < -1 || value > 100) return cudaErrorInvalidValue;
    settings.carveout = value;
  } else {
    return cudaErrorInvalidValue;
  }
  return cudaSuccess;
}

cudaError_t get_attributes(cudaFuncAttributes* attributes, const void* kernel) {
  if (!kernel) return cudaErrorInvalidDeviceFunction;
  if (!attributes) return cudaErrorInvalidValue;
  const std::lock_guard lock(mutex);
  const Settings& settings = settings_of(kernel);
  *attributes = {};
  attributes->maxThreadsPerBlock = DeviceLimits::block_threads;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = 90;
  attributes->maxDynamicSharedSizeBytes = static_cast<int>(settings.dynamic_shared);
  attributes->preferredShmemCarveout = settings.carveout;
  return cudaSuccess;
}

/// Threads, blocks and shared memory of a multiprocessor; registers are not known.
int active_blocks(int block_size, std::size_t shared_bytes) {
  using Limits = DeviceLimits;
  const auto threads = static_cast<unsigned>((block_size + 31) / 32 * 32);
  std::size_t blocks = std::min<std::size_t>(Limits::threads_per_multiprocessor / threads,
                                             Limits::blocks_per_multiprocessor);
  constexpr std::size_t reserved = 1024;
  blocks = std::min(blocks, (Limits::shared_bytes_optin + reserved) / (shared_bytes + reserved));
  return static_cast<int>(blocks);
}

}  // namespace

std::size_t dynamic_shared_limit(const void* kernel) {
  const std::lock_guard lock(mutex);
  return std::max(settings_of(kernel).dynamic_shared, DeviceLimits::shared_bytes);
}

std::uint64_t blocks_at_once(const LaunchShape& shape) {
  const int blocks = active_blocks(static_cast<int>(shape.threads()), shape.shared_bytes);
  return std::uint64_t{DeviceLimits::multiprocessors} * static_cast<unsigned>(std::max(blocks, 1));
}

}  // namespace simgpu

extern "C" {

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  static simgpu::EntryPoint entry("cudaFuncSetAttribute");
  return entry.call([&] { return simgpu::set_attribute(function, attribute, value); });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  static simgpu::EntryPoint entry("cudaFuncGetAttributes");
  return entry.call([&] { return simgpu::get_attributes(attributes, function); });
}

cudaError_t cudaFuncGetName(const char** name, const void* function) {
  static simgpu::EntryPoint entry("cudaFuncGetName");
  return entry.call([&] {
    if (!name) return cudaErrorInvalidValue;
    if (!function) return cudaErrorInvalidDeviceFunction;
    const std::lock_guard lock(simgpu::mutex);
    simgpu::Settings& settings = simgpu::settings_of(function);
    if (settings.name.empty()) settings.name = simgpu::function_name(function);
    *name = settings.name.c_str();
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                          int block_size,
                                                          std::size_t dynamic_shared_bytes) {
  static simgpu::EntryPoint entry("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return entry.call([&] {
    if (!blocks || block_size < 1) return cudaErrorInvalidValue;
    if (!function) return cudaErrorInvalidDeviceFunction;
    *blocks = block_size > static_cast<int>(simgpu::DeviceLimits::block_threads)
                  ? 0
                  : simgpu::active_blocks(block_size, dynamic_shared_bytes);
    return cudaSuccess;
  });
}

}  // extern "C"
