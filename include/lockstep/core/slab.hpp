#pragma once

#include <cstddef>

/// @file
/// Memory for the small objects that every op creates: tensor headers, storages, graph nodes.

namespace lockstep {

/// Memory of at least `bytes` bytes from the calling thread's free lists: no lock, no system call
/// in the steady state. May be freed on any thread.
void* slab_allocate(std::size_t bytes);

/// Returns memory of `slab_allocate`, which was asked for with the same `bytes`.
void slab_free(void* memory, std::size_t bytes) noexcept;

/// Base that makes `new` and `delete` of a class use the slabs.
struct SlabAllocated {
  /// Memory from the slabs.
  static void* operator new(std::size_t bytes) { return slab_allocate(bytes); }
  /// Back to the slabs.
  static void operator delete(void* memory, std::size_t bytes) noexcept {
    slab_free(memory, bytes);
  }
};

}  // namespace lockstep
