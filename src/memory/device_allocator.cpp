#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "lockstep/memory/caching_pool.hpp"
#include "memory/device_allocators.hpp"

namespace lockstep {
namespace {

/// Every request straight from the C library, so that memory checkers see each block.
class UnpooledHost final : public Allocator {
 public:
  MemoryBlock* allocate(std::size_t bytes, StreamRef) override {
    if (bytes == 0) return nullptr;
    auto block = std::make_unique<MemoryBlock>();
    if (bytes <= largest_request)
      block->data = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    LOCKSTEP_CHECK(block->data, OutOfMemory, "out of memory on cpu: asked for ", bytes, " bytes");
    block->size = bytes;
    count(bytes);
    return block.release();
  }
  void deallocate(MemoryBlock* block) noexcept override {
    if (!block) return;
    live_bytes_ -= block->size;
    std::free(block->data);
    delete block;
  }
  void record_stream(MemoryBlock*, StreamRef) override {}
  void release_cached() override {}
  PoolStatistics statistics() const override {
    const std::size_t live = live_bytes_, peak = peak_live_bytes_;
    return {.live_bytes = live,
            .peak_live_bytes = peak,
            .reserved_bytes = live,
            .peak_reserved_bytes = peak,
            .allocations = allocations_};
  }

 private:
  static constexpr std::size_t alignment = 64;
  static constexpr std::size_t largest_request = std::size_t{1} << 48;

  void count(std::size_t bytes) {
    ++allocations_;
    const std::size_t live = live_bytes_ += bytes;
    std::size_t peak = peak_live_bytes_;
    while (peak < live && !peak_live_bytes_.compare_exchange_weak(peak, live)) {
    }
  }

  std::atomic<std::size_t> live_bytes_ = 0, peak_live_bytes_ = 0;
  std::atomic<std::uint64_t> allocations_ = 0;
};

bool pool_disabled() {
  const char* value = std::getenv("LOCKSTEP_POOL");
  return value && std::string_view(value) == "off";
}

// Never destroyed: tensors in static storage may outlive any order of destruction.
Allocator& host_allocator() {
  static Allocator& allocator = *[]() -> Allocator* {
    if (pool_disabled()) return new UnpooledHost();
    return new CachingPool<HostUpstream>({}, device_runtime(DeviceType::cpu), cpu,
                                         {.granularity = 64});
  }();
  return allocator;
}

}  // namespace

Allocator& device_allocator(Device device) {
  if (device.is_cpu()) return host_allocator();
  Allocator* allocator = cuda_allocator(device.index);
  LOCKSTEP_CHECK(allocator, Unsupported, "this lockstep was built without CUDA");
  return *allocator;
}

}  // namespace lockstep
