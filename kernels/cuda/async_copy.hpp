#pragma once

#include "cuda/vector.hpp"

/// @file
/// Copies from global to shared memory that pass by the registers (cp.async, sm_80): as many are
/// under way as a thread begins, and it goes on meanwhile.

namespace lockstep::cuda_kernels {

/// Begins to copy 16 bytes between addresses that are multiples of 16. The destination is the
/// thread's own until it waits.
template <class T>
__device__ void begin_copy(T* shared, const T* global) {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(shared))),
               "l"(global)
               : "memory");
#else
  constexpr int lanes = 16 / sizeof(T);
  store_vector<lanes>(shared, load_vector<lanes>(global));
#endif
}

/// The pointer itself, to global memory. What computed it stays outside of the loop that uses it.
template <class T>
__device__ T* computed_once(T* global) {
#if defined(__CUDA_ARCH__)
  std::size_t address = __cvta_generic_to_global(global);
  asm("" : "+l"(address));
  return reinterpret_cast<T*>(__cvta_global_to_generic(address));
#else
  return global;
#endif
}

/// Waits for the copies that the thread has begun; others see them behind a barrier.
__device__ inline void wait_for_copies() {
#if defined(__CUDA_ARCH__)
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

}  // namespace lockstep::cuda_kernels
