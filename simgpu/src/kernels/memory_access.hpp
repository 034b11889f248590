#pragma once

#include <cstdint>

/// @file
/// What a CUDA thread does to memory: what the compiler's hooks tell those who watch.

/// What is the same at each place of a hook is left out there: the way of a plain access is
/// compiled for each size and kind of access.
#define SIMGPU_ALWAYS_INLINE inline __attribute__((always_inline))

namespace simgpu {

enum class AccessKind : unsigned char { read, write, atomic };

/// One access of the running thread.
struct MemoryAccess {
  std::uintptr_t address = 0;
  unsigned bytes = 0;  ///< 1 to 16
  AccessKind kind = AccessKind::read;
  bool is_volatile = false;
  bool is_of_block = false;     ///< atomic for the threads of the block only
  const void* place = nullptr;  ///< in the kernel's code: the return address of the hook

  bool reads() const { return kind != AccessKind::write; }
  bool writes() const { return kind != AccessKind::read; }
};

}  // namespace simgpu
