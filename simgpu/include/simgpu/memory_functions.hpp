#pragma once

#include <cstring>

#include <string.h>

/// @file
/// memcpy, memmove and memset of kernels. The compiler's instrumentation sees them where they are
/// one load and one store; others are told of here. In files that are compiled for the simulated
/// GPU alone.

#if defined(__SANITIZE_THREAD__)

extern "C" {  // as the compiler itself declares them
void __tsan_read_range(void* data, long bytes);
void __tsan_write_range(void* data, long bytes);
}

#define SIMGPU_IS_WORD(bytes)     \
  (__builtin_constant_p(bytes) && \
   ((bytes) == 1 || (bytes) == 2 || (bytes) == 4 || (bytes) == 8 || (bytes) == 16))

// What is written is looked at behind each part: a race of threads that store the same is none.
__attribute__((always_inline)) inline void* simgpu_memcpy(void* to, const void* from,
                                                          size_t bytes) {
  if (SIMGPU_IS_WORD(bytes) || bytes == 0) return __builtin_memcpy(to, from, bytes);
  __tsan_read_range(const_cast<void*>(from), static_cast<long>(bytes));
  for (size_t at = 0; at < bytes; at += 16) {
    size_t part = bytes - at < 16 ? bytes - at : 16;
    __asm__("" : "+r"(part));  // not known to be a word, which would be told of once more
    __tsan_write_range(static_cast<char*>(to) + at, static_cast<long>(part));
    __builtin_memcpy(static_cast<char*>(to) + at, static_cast<const char*>(from) + at, part);
  }
  return to;
}

__attribute__((always_inline)) inline void* simgpu_memmove(void* to, const void* from,
                                                           size_t bytes) {
  if (!SIMGPU_IS_WORD(bytes) && bytes > 0) {
    __tsan_read_range(const_cast<void*>(from), static_cast<long>(bytes));
    __tsan_write_range(to, static_cast<long>(bytes));
  }
  return __builtin_memmove(to, from, bytes);
}

__attribute__((always_inline)) inline void* simgpu_memset(void* to, int value, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 16) {
    size_t part = bytes - at < 16 ? bytes - at : 16;
    __asm__("" : "+r"(part));  // not known to be a word, which would be told of once more
    __tsan_write_range(static_cast<char*>(to) + at, static_cast<long>(part));
    __builtin_memset(static_cast<char*>(to) + at, value, part);
  }
  return to;
}

namespace std {
using ::simgpu_memcpy;
using ::simgpu_memmove;
using ::simgpu_memset;
}  // namespace std

#define memcpy simgpu_memcpy
#define memmove simgpu_memmove
#define memset simgpu_memset

#endif
