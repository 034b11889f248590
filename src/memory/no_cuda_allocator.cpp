#include "memory/device_allocators.hpp"

namespace lockstep {

MemoryPool* cuda_allocator(int) { return nullptr; }
Allocator* cuda_pinned_allocator() { return nullptr; }

}  // namespace lockstep
