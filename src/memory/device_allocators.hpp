#pragma once

#include "lockstep/memory/allocator.hpp"

namespace lockstep {

/// The pool of a CUDA device, or null in a build without CUDA (`no_cuda_allocator.cpp`).
Allocator* cuda_allocator(int index);

}  // namespace lockstep
