#pragma once

#include "lockstep/memory/allocator.hpp"

namespace lockstep {

/// True with LOCKSTEP_POOL=off: every request goes to the driver or the C library.
bool pool_disabled();

/// The pool of a CUDA device, or null in a build without CUDA (`no_cuda_allocator.cpp`).
Allocator* cuda_allocator(int index);

/// The pool of page-locked host memory, or null in a build without CUDA (`no_cuda_allocator.cpp`).
Allocator* cuda_pinned_allocator();

}  // namespace lockstep
