#include "memory/device_allocators.hpp"

namespace lockstep {

Allocator* cuda_allocator(int) { return nullptr; }
Allocator* cuda_pinned_allocator() { return nullptr; }

}  // namespace lockstep
