#pragma once

#include <cstddef>

#include "cuda_runtime_api.h"

namespace simgpu {

/// Memory of the host that devices reach: pinned, or managed. @param flags of cudaHostAlloc
cudaError_t allocate_host_side(void** data, std::size_t bytes, unsigned flags, cudaMemoryType kind);

}  // namespace simgpu
