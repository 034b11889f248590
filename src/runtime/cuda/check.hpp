#pragma once

#include <cuda_runtime.h>

#include "lockstep/core/error.hpp"

namespace lockstep::detail {

/// Throws CudaError for a failed call and clears the runtime's sticky note of it.
[[noreturn]] LOCKSTEP_COLD inline void throw_cuda_error(
    const char* call, cudaError_t status,
    std::source_location where = std::source_location::current()) {
  static_cast<void>(cudaGetLastError());
  throw CudaError(call, static_cast<int>(status), cudaGetErrorString(status), where);
}

}  // namespace lockstep::detail

/// Calls a CUDA runtime function; throws CudaError with its name unless it succeeds.
#define LOCKSTEP_CUDA_CALL(function, ...)                                                          \
  do {                                                                                             \
    if (const cudaError_t lockstep_status = function(__VA_ARGS__); lockstep_status != cudaSuccess) \
        [[unlikely]]                                                                               \
      ::lockstep::detail::throw_cuda_error(#function, lockstep_status);                            \
  } while (false)
