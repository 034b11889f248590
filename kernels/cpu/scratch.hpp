#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

#include "lockstep/core/thread_kept.hpp"

namespace lockstep::cpu_kernels {

/// Working memory that a thread keeps from call to call: it grows to the largest request, is
/// aligned to a cache line, and its contents do not outlive the call that asked. The object is, or
/// is in, a `thread_local` one.
class Scratch : detail::ThreadKept {
 public:
  /// At least `count` elements. @throws std::bad_alloc.
  template <class T>
  T* get(std::size_t count) {
    const std::size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
    if (bytes > size_) grow(bytes);
    return static_cast<T*>(memory_);
  }

 private:
  void grow(std::size_t bytes) {
    free_at_thread_end([](detail::ThreadKept& kept) { static_cast<Scratch&>(kept).clear(); });
    clear();
    memory_ = std::aligned_alloc(64, bytes);
    if (!memory_) throw std::bad_alloc();
    size_ = bytes;
  }
  void clear() {
    std::free(memory_);
    memory_ = nullptr;
    size_ = 0;
  }

  void* memory_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lockstep::cpu_kernels
