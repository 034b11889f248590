#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

#include "lockstep/observe/log.hpp"
#include "lockstep/runtime/info.hpp"
#include "memory/caching_pool.hpp"
#include "memory/cuda/async_pool.hpp"
#include "memory/cuda/cuda_virtual_memory.hpp"
#include "memory/device_allocators.hpp"
#include "memory/direct_pool.hpp"
#include "memory/paged_upstream.hpp"

namespace lockstep {
namespace {

using CudaPool = CachingPool<CudaUpstream>;
using CudaPages = PagedUpstream<CudaVirtualMemory>;
using GrowableCudaPool = CachingPool<CudaPages>;
using Unpooled = UnpooledAllocator<CudaUpstream>;

/// Each segment has addresses for as much as the device has memory.
std::unique_ptr<MemoryPool> make_growable(int index, PoolOptions options) {
  DeviceRuntime& runtime = device_runtime(DeviceType::cuda);
  const CudaVirtualMemory memory(index);
  options.small_segment = std::max(options.small_segment, memory.page_bytes());
  return std::make_unique<GrowableCudaPool>(CudaPages(memory, runtime.memory_info(index).second),
                                            runtime, cuda(index), options);
}

std::unique_ptr<MemoryPool> make_caching(int index, PoolKind kind, const PoolOptions& options) {
  if (kind == PoolKind::growable) {
    if (CudaVirtualMemory::is_supported(index)) return make_growable(index, options);
    LOCKSTEP_LOG(warning, "the pool of ", cuda(index),
                 " is \"caching\" instead of \"growable\": the device or its driver has no virtual "
                 "memory management");
  }
  return std::make_unique<CudaPool>(CudaUpstream(index), device_runtime(DeviceType::cuda),
                                    cuda(index), options);
}

/// One allocator a device, made on first use.
class CudaPools {
 public:
  MemoryPool& of(int index) {
    const int count = cuda_device_count();
    LOCKSTEP_CHECK(index >= 0 && index < count, InvalidArgument, "there is no ", cuda(index),
                   ": this machine has ", count, " usable CUDA devices");
    const std::lock_guard lock(mutex_);
    pools_.resize(static_cast<std::size_t>(count));
    auto& pool = pools_[static_cast<std::size_t>(index)];
    if (!pool) pool = make(index);
    return *pool;
  }

 private:
  static std::unique_ptr<MemoryPool> make(int index) {
    switch (const PoolKind kind = final_pool_kind()) {
      // cudaFree waits for the whole device: no stream can still use what goes back.
      case PoolKind::none: return std::make_unique<Unpooled>(CudaUpstream(index), cuda(index));
      case PoolKind::async: return std::make_unique<CudaAsyncPool>(index);
      case PoolKind::growable:
      case PoolKind::caching: return make_caching(index, kind, {});
    }
    return nullptr;
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<MemoryPool>> pools_;
};

/// Blocks are marked used by streams of GPUs, though the memory is the host's.
std::unique_ptr<Allocator> make_pinned() {
  LOCKSTEP_CHECK(cuda_device_count() > 0, Unsupported,
                 "pinned memory is for copies to and from a GPU; this machine has none");
  DeviceRuntime& runtime = device_runtime(DeviceType::cuda);
  // cudaFreeHost, other than cudaFree, need not wait for any device.
  if (final_pool_kind() == PoolKind::none)
    return std::make_unique<UnpooledAllocator<PinnedUpstream>>(PinnedUpstream(), cpu, &runtime);
  return std::make_unique<CachingPool<PinnedUpstream>>(PinnedUpstream(), runtime, cpu);
}

}  // namespace

// Never destroyed: tensors in static storage may outlive any order of destruction, and the driver
// takes all memory back when the process ends.
MemoryPool* cuda_allocator(int index) {
  static CudaPools& pools = *new CudaPools();
  return &pools.of(index);
}

std::unique_ptr<MemoryPool> new_cuda_pool(int index) {
  const PoolKind kind = final_pool_kind();
  if (kind == PoolKind::none || kind == PoolKind::async) return nullptr;
  return make_caching(index, kind, {.keeps = true});
}

Allocator* cuda_pinned_allocator() {
  static Allocator& pool = *make_pinned().release();
  return &pool;
}

}  // namespace lockstep
