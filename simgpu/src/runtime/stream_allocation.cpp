#include <string>
#include <utility>

#include "base/faults.hpp"
#include "base/leaks.hpp"
#include "base/report.hpp"
#include "cuda_runtime_api.h"
#include "engine/entry.hpp"
#include "engine/host.hpp"
#include "engine/operation.hpp"
#include "memory/allocations.hpp"
#include "memory/memory_pools.hpp"
#include "memory/pool_blocks.hpp"
#include "runtime/pool_observer.hpp"

/// @file
/// Memory that comes and goes in stream order: cudaMallocAsync and its like. Not during capture:
/// the simulated GPU has no allocation nodes.

namespace simgpu {
namespace {

cudaError_t enqueue_change(const char* name, const PoolBlock& block, cudaStream_t stream,
                           std::function<void()> change) {
  return enqueue(stream, {.name = name,
                          .site = CallSite::here(),
                          .accesses = {{block.block.data, block.block.bytes, true}},
                          .run = [change = std::move(change)] {
                            change();
                            return true;
                          }});
}

cudaError_t allocate_async(void** data, std::size_t bytes, int device, cudaStream_t stream) {
  if (!data) return cudaErrorInvalidValue;
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  observe_pools();
  const std::size_t used = total_memory(device) - free_memory(device);
  if (faults().out_of_memory(used + bytes)) return cudaErrorMemoryAllocation;
  void* made = nullptr;
  cudaError_t status = allocate(&made, bytes, device, MemoryKind::device);
  // What the stream has freed before serves it, though that is still to come on the device: here
  // once it has come.
  if (status == cudaErrorMemoryAllocation && run_out(stream) == cudaSuccess)
    status = allocate(&made, bytes, device, MemoryKind::device);
  if (status != cudaSuccess) return status;
  forget_accesses(made, bytes);
  PoolBlock block{.block = Allocations::instance().find(made)->block, .capacity = bytes};
  block.block.is_pool_block = true;
  PoolBlocks::instance().allocated(block);
  const cudaError_t queued = enqueue_change("cudaMallocAsync", block, stream, [block] {
    PoolBlocks::instance().allocated_on_device(block);
  });
  if (queued != cudaSuccess) {
    static_cast<void>(release(made, MemoryKind::device));
    return queued;
  }
  object_created("allocation", made, std::to_string(bytes) + " bytes of device memory");
  *data = made;
  return cudaSuccess;
}

cudaError_t refuse(const void* data) {
  report(Finding::invalid_free,
         "cudaFreeAsync of what no allocation begins with: " + describe_address(data) + "\n  at " +
             describe(CallSite::here()));
  return cudaErrorInvalidValue;
}

/// The host may not use the memory from now on, the device up to this point of the stream.
cudaError_t free_async(void* data, cudaStream_t stream) {
  if (!data) return cudaSuccess;
  const auto allocation = Allocations::instance().find(data);
  if (!allocation || allocation->reservation || allocation->block.data != data ||
      allocation->block.kind != MemoryKind::device)
    return refuse(data);
  const CallSite site = CallSite::here();
  PoolBlocks& blocks = PoolBlocks::instance();
  const auto block = blocks.freed(data, site);
  if (!block && blocks.serves_pool(data)) return refuse(data);
  object_destroyed("allocation", data);
  const PoolBlock whole{.block = allocation->block, .capacity = allocation->block.bytes};
  return enqueue_change("cudaFreeAsync", whole, stream, [data, site] {
    PoolBlocks::instance().freed_on_device(data, site);
    static_cast<void>(release(data, MemoryKind::device));
  });
}

}  // namespace
}  // namespace simgpu

using simgpu::Allowed;
using simgpu::EntryPoint;
using simgpu::MemoryPool;

cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t stream) {
  static EntryPoint entry("cudaMallocAsync", Allowed::not_capturing);
  return entry.call([&] {
    int device = 0;
    const cudaError_t status = simgpu::device_of_stream(stream, &device);
    if (status != cudaSuccess) return status;
    return simgpu::allocate_async(data, bytes, device, stream);
  });
}

cudaError_t cudaMallocFromPoolAsync(void** data, std::size_t bytes, cudaMemPool_t pool,
                                    cudaStream_t stream) {
  static EntryPoint entry("cudaMallocFromPoolAsync", Allowed::not_capturing);
  return entry.call([&] {
    const MemoryPool* found = MemoryPool::from(pool);
    if (!found) return cudaErrorInvalidValue;
    return simgpu::allocate_async(data, bytes, found->device(), stream);
  });
}

cudaError_t cudaFreeAsync(void* data, cudaStream_t stream) {
  static EntryPoint entry("cudaFreeAsync", Allowed::not_capturing);
  return entry.call([&] { return simgpu::free_async(data, stream); });
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  static EntryPoint entry("cudaDeviceGetDefaultMemPool");
  return entry.call([&] { return MemoryPool::of_device(pool, device); });
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  static EntryPoint entry("cudaDeviceGetMemPool");
  return entry.call([&] { return MemoryPool::of_device(pool, device); });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  static EntryPoint entry("cudaMemPoolSetAttribute");
  return entry.call([&] {
    MemoryPool* found = MemoryPool::from(pool);
    return found && value ? found->set(attribute, value) : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  static EntryPoint entry("cudaMemPoolGetAttribute");
  return entry.call([&] {
    const MemoryPool* found = MemoryPool::from(pool);
    return found && value ? found->get(attribute, value) : cudaErrorInvalidValue;
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, std::size_t) {
  static EntryPoint entry("cudaMemPoolTrimTo");
  return entry.call([&] { return MemoryPool::from(pool) ? cudaSuccess : cudaErrorInvalidValue; });
}
