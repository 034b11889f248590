#include "memory/stack_memory.hpp"

#include <cstddef>

#include <pthread.h>

namespace simgpu {
namespace {

/// Of the calling thread; empty where the system does not say.
struct Stack {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;

  Stack() {
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
    void* lowest = nullptr;
    std::size_t bytes = 0;
    if (pthread_attr_getstack(&attributes, &lowest, &bytes) == 0) {
      begin = static_cast<const std::byte*>(lowest);
      end = begin + bytes;
    }
    pthread_attr_destroy(&attributes);
  }
  bool has(const void* address) const { return address >= begin && address < end; }
};

}  // namespace

bool is_left_stack(const void* address, const void* frame) {
  static thread_local const Stack stack;
  return stack.has(address) && stack.has(frame) && address < frame;
}

}  // namespace simgpu
