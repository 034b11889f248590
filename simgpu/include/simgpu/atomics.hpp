#pragma once

#include <cstddef>
#include <type_traits>

/// @file
/// Atomic functions. CUDA threads are switched at barriers and shuffles only, so that a plain
/// read-modify-write is atomic among them; the checks are told that it was meant so.

namespace simgpu {

/// The running CUDA thread reads and writes this memory in one step.
void atomic_access(void* address, std::size_t bytes);

template <class T, class Change>
__attribute__((no_sanitize("thread"))) T atomic_change(T* address, const Change& change) {
  atomic_access(address, sizeof(T));
  const T old = *address;
  *address = change(old);
  return old;
}

}  // namespace simgpu

// The value's type follows the address alone, as with the overloads of the original.
#define SIMGPU_ATOMIC(name, result)                                                         \
  template <class T>                                                                        \
  T name(T* address, std::type_identity_t<T> value) {                                       \
    return ::simgpu::atomic_change(                                                         \
        address, [value](T old) __attribute__((no_sanitize("thread"))) { return result; }); \
  }                                                                                         \
  template <class T>                                                                        \
  T name##_block(T* address, std::type_identity_t<T> value) {                               \
    return name(address, value);                                                            \
  }                                                                                         \
  template <class T>                                                                        \
  T name##_system(T* address, std::type_identity_t<T> value) {                              \
    return name(address, value);                                                            \
  }

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

template <class T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> desired) {
  return ::simgpu::atomic_change(
      address, [=](T old) __attribute__((no_sanitize("thread"))) {
        return old == expected ? desired : old;
      });
}
