#pragma once

#include "kernels/access_stamp.hpp"
#include "vector_types.h"

/// @file
/// Words for a race in device memory.

namespace simgpu {

/// Two accesses of a launch that nothing orders.
struct GlobalRace {
  /// One of them.
  struct Side {
    uint3 block{};
    unsigned thread = 0;
    const char* does = "";        ///< "reads", "writes" or "changes"
    const void* place = nullptr;  ///< in the kernel's code
  };
  /// What would have ordered them.
  enum class Missing : unsigned char {
    barrier,          ///< within a block
    atomic,           ///< both change it
    wider_atomic,     ///< atomic for a block, used by two
    order,            ///< nothing orders the two blocks
    releasing_fence,  ///< before the atomic operation by which the first block tells
    acquiring_fence   ///< after the one by which the second block learns
  };
  Side first, second;
  const void* data = nullptr;
  unsigned bytes = 0;
  Missing missing = Missing::barrier;
};

/// Reports it, once a kernel and place of its launch.
void report_race(const GlobalRace& race);
/// Tells of threads that stored the same value, for those who asked (LOCKSTEP_SIM_NOTES).
void note_same_value(const GlobalRace& race);

}  // namespace simgpu
