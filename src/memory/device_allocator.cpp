#include <cstdlib>

#include "lockstep/core/error.hpp"
#include "memory/allocator_override.hpp"
#include "memory/caching_pool.hpp"
#include "memory/device_allocators.hpp"
#include "memory/direct_pool.hpp"
#include "memory/paged_upstream.hpp"

namespace lockstep {
namespace {

struct AlignedHostMemory {
  static constexpr std::size_t alignment = 64;
  static void* allocate(std::size_t bytes) {
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  }
  static void deallocate(void* data, std::size_t) noexcept { std::free(data); }
};

using AlignedHostPool = UnpooledAllocator<AlignedHostMemory>;
using HostPages = PagedUpstream<HostVirtualMemory>;
using GrowableHostPool = CachingPool<HostPages>;

/// Each segment has addresses for as much as the machine has memory.
HostPages pages() { return {{}, device_runtime(DeviceType::cpu).memory_info(0).second}; }

/// Null where the chosen kind keeps no memory.
std::unique_ptr<MemoryPool> new_host_pool(bool keeps) {
  DeviceRuntime& runtime = device_runtime(DeviceType::cpu);
  const PoolOptions options{.granularity = 64, .keeps = keeps};
  switch (final_pool_kind()) {
    case PoolKind::async:  // work of the CPU is done when the call returns
    case PoolKind::none: return nullptr;
    case PoolKind::growable:
      return std::make_unique<GrowableHostPool>(pages(), runtime, cpu, options);
    case PoolKind::caching: break;
  }
  return std::make_unique<CachingPool<HostUpstream>>(HostUpstream(), runtime, cpu, options);
}

// Never destroyed: tensors in static storage may outlive any order of destruction.
MemoryPool& host_allocator() {
  static MemoryPool& allocator = *[] {
    std::unique_ptr<MemoryPool> pool = new_host_pool(false);
    if (!pool) pool = std::make_unique<AlignedHostPool>(AlignedHostMemory(), cpu);
    return pool.release();
  }();
  return allocator;
}

}  // namespace

MemoryPool& memory_pool(Device device) {
  if (device.is_cpu()) return host_allocator();
  MemoryPool* allocator = cuda_allocator(device.index);
  LOCKSTEP_CHECK(allocator, Unsupported, "this lockstep was built without CUDA");
  return *allocator;
}

Allocator& device_allocator(Device device) {
  if (Allocator* const allocator = detail::AllocatorOverride::of(device)) [[unlikely]]
    return *allocator;
  return memory_pool(device);
}

std::unique_ptr<MemoryPool> new_memory_pool(Device device) {
  return device.is_cpu() ? new_host_pool(true) : new_cuda_pool(device.index);
}

Allocator& pinned_allocator() {
  Allocator* allocator = cuda_pinned_allocator();
  LOCKSTEP_CHECK(allocator, Unsupported,
                 "pinned memory is for copies to and from a GPU; this lockstep was built without "
                 "CUDA");
  return *allocator;
}

}  // namespace lockstep
