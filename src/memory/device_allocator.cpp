#include <cstdlib>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "memory/caching_pool.hpp"
#include "memory/device_allocators.hpp"
#include "memory/unpooled.hpp"

namespace lockstep {
namespace {

struct AlignedHostMemory {
  static constexpr std::size_t alignment = 64;
  static void* allocate(std::size_t bytes) {
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  }
  static void deallocate(void* data, std::size_t) noexcept { std::free(data); }
};

// Never destroyed: tensors in static storage may outlive any order of destruction.
Allocator& host_allocator() {
  static Allocator& allocator = *[]() -> Allocator* {
    if (pool_disabled()) return new UnpooledAllocator<AlignedHostMemory>({}, cpu);
    return new CachingPool<HostUpstream>({}, device_runtime(DeviceType::cpu), cpu,
                                         {.granularity = 64});
  }();
  return allocator;
}

}  // namespace

bool pool_disabled() {
  const char* value = std::getenv("LOCKSTEP_POOL");
  return value && std::string_view(value) == "off";
}

Allocator& device_allocator(Device device) {
  if (device.is_cpu()) return host_allocator();
  Allocator* allocator = cuda_allocator(device.index);
  LOCKSTEP_CHECK(allocator, Unsupported, "this lockstep was built without CUDA");
  return *allocator;
}

Allocator& pinned_allocator() {
  Allocator* allocator = cuda_pinned_allocator();
  LOCKSTEP_CHECK(allocator, Unsupported,
                 "pinned memory is for copies to and from a GPU; this lockstep was built without "
                 "CUDA");
  return *allocator;
}

}  // namespace lockstep
