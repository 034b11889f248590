#pragma once

#include <memory>

#include "lockstep/memory/memory_pool.hpp"

namespace lockstep {

/// The pool of a CUDA device, or null in a build without CUDA (`no_cuda.cpp`).
MemoryPool* cuda_allocator(int index);

/// A pool of its own over memory of a CUDA device, which gives nothing back unless it is told to;
/// null where the chosen kind of pool keeps no memory, and in a build without CUDA.
std::unique_ptr<MemoryPool> new_cuda_pool(int index);

/// The same of any device.
std::unique_ptr<MemoryPool> new_memory_pool(Device device);

/// The pool of page-locked host memory, or null in a build without CUDA (`no_cuda.cpp`).
Allocator* cuda_pinned_allocator();

/// The choice of `set_pool` or LOCKSTEP_POOL, for a pool that is about to be made: it is final from
/// now on.
PoolKind final_pool_kind();

}  // namespace lockstep
