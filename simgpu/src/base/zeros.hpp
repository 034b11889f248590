#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

/// @file
/// Large arrays of which little is used.

namespace simgpu {

struct FreeZeros {
  void operator()(void* memory) const noexcept { std::free(memory); }
};

/// Elements whose bytes are 0.
template <class T>
using Zeros = std::unique_ptr<T[], FreeZeros>;

/// An array of so many, whose pages come when they are touched.
template <class T>
Zeros<T> zeros(std::size_t count) {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
  void* const memory = std::calloc(count, sizeof(T));
  if (!memory) throw std::bad_alloc();
  return Zeros<T>(static_cast<T*>(memory));
}

}  // namespace simgpu
