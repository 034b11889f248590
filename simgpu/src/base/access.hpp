#pragma once

#include <cstddef>

/// @file
/// Memory that something touches.

namespace simgpu {

/// Memory that an operation reads or writes. Memory that no device knows is left out of account.
struct Access {
  const void* data = nullptr;
  std::size_t bytes = 0;
  bool writes = false;
};

}  // namespace simgpu
