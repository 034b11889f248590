#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/call_site.hpp"
#include "simgpu/launch.hpp"

/// @file
/// A launch, as the executor thread gets it.

namespace simgpu {

/// Extents of a launch.
struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;

  std::uint64_t blocks() const { return std::uint64_t{grid.x} * grid.y * grid.z; }
  unsigned threads() const { return block.x * block.y * block.z; }
};

/// One launch.
struct KernelLaunch {
  /// A tracked address among the arguments.
  struct Pointer {
    const void* data;
    bool may_write;
  };

  std::string name;
  CallSite site;
  const void* kernel = nullptr;
  int device = 0;
  LaunchShape shape;
  KernelCall thread;               ///< runs one CUDA thread
  std::size_t argument_bytes = 0;  ///< of the copies that it passes on, at most
  std::vector<Pointer> pointers;
  std::uint64_t seed = 0;  ///< of the order of the blocks
};

}  // namespace simgpu
