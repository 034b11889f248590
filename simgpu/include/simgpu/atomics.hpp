#pragma once

#include <cstddef>

#include "simgpu/language.hpp"

/// @file
/// Atomic functions. CUDA threads are switched at barriers and shuffles only, so that a plain
/// read-modify-write is atomic among them; the checks are told that it was meant so.

namespace simgpu {

/// For whom an operation is one step: the threads of the block, or all.
enum class AtomicScope : unsigned char { block, all };

/// The running CUDA thread reads and writes this memory in one step.
/// @param place an address in the kernel's code.
void atomic_access(void* address, std::size_t bytes, AtomicScope scope, const void* place);

// Not inlined: its caller is in the kernel.
template <class T, class Change>
__attribute__((no_sanitize("thread"), noinline)) T atomic_change(T* address, AtomicScope scope,
                                                                 const Change& change) {
  atomic_access(address, sizeof(T), scope, __builtin_return_address(0));
  const T old = *address;
  *address = change(old);
  return old;
}

}  // namespace simgpu

// The value's type follows the address alone, as with the overloads of the original.
#define SIMGPU_SCOPED_ATOMIC(name, scope, result)                                             \
  template <class T>                                                                          \
  T name(T* address, ::simgpu::type_identity_t<T> value) {                                    \
    return ::simgpu::atomic_change(                                                           \
        address,                                                                              \
        ::simgpu::AtomicScope::scope, [value](T old) __attribute__((no_sanitize("thread"))) { \
          return result;                                                                      \
        });                                                                                   \
  }
#define SIMGPU_ATOMIC(name, result)                \
  SIMGPU_SCOPED_ATOMIC(name, all, result)          \
  SIMGPU_SCOPED_ATOMIC(name##_system, all, result) \
  SIMGPU_SCOPED_ATOMIC(name##_block, block, result)

SIMGPU_ATOMIC(atomicAdd, static_cast<T>(old + value))
SIMGPU_ATOMIC(atomicSub, static_cast<T>(old - value))
SIMGPU_ATOMIC(atomicMax, old < value ? value : old)
SIMGPU_ATOMIC(atomicMin, value < old ? value : old)
SIMGPU_ATOMIC(atomicExch, (static_cast<void>(old), value))
SIMGPU_ATOMIC(atomicAnd, static_cast<T>(old& value))
SIMGPU_ATOMIC(atomicOr, static_cast<T>(old | value))
SIMGPU_ATOMIC(atomicXor, static_cast<T>(old ^ value))
SIMGPU_ATOMIC(atomicInc, old >= value ? T(0) : static_cast<T>(old + 1))
SIMGPU_ATOMIC(atomicDec, old == 0 || old > value ? value : static_cast<T>(old - 1))

#undef SIMGPU_ATOMIC
#undef SIMGPU_SCOPED_ATOMIC

namespace simgpu {

template <class T>
T compare_and_swap(T* address, AtomicScope scope, T expected, T desired) {
  return atomic_change(
      address, scope, [=](T old) __attribute__((no_sanitize("thread"))) {
        return old == expected ? desired : old;
      });
}

}  // namespace simgpu

template <class T>
T atomicCAS(T* address, ::simgpu::type_identity_t<T> expected,
            ::simgpu::type_identity_t<T> desired) {
  return ::simgpu::compare_and_swap(address, ::simgpu::AtomicScope::all, expected, desired);
}
template <class T>
T atomicCAS_system(T* address, ::simgpu::type_identity_t<T> expected,
                   ::simgpu::type_identity_t<T> desired) {
  return ::simgpu::compare_and_swap(address, ::simgpu::AtomicScope::all, expected, desired);
}
template <class T>
T atomicCAS_block(T* address, ::simgpu::type_identity_t<T> expected,
                  ::simgpu::type_identity_t<T> desired) {
  return ::simgpu::compare_and_swap(address, ::simgpu::AtomicScope::block, expected, desired);
}
