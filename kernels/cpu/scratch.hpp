#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace lockstep::cpu_kernels {

/// Working memory that a thread keeps from call to call: it grows to the largest request, is
/// aligned to a cache line, and its contents do not outlive the call that asked.
class Scratch {
 public:
  /// At least `count` elements. @throws std::bad_alloc.
  template <class T>
  T* get(std::size_t count) {
    const std::size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
    if (bytes > size_) {
      memory_.reset(std::aligned_alloc(64, bytes));
      size_ = memory_ ? bytes : 0;
      if (!memory_) throw std::bad_alloc();
    }
    return static_cast<T*>(memory_.get());
  }

 private:
  struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }
  };
  std::unique_ptr<void, Free> memory_;
  std::size_t size_ = 0;
};

}  // namespace lockstep::cpu_kernels
