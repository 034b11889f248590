#pragma once

#include <initializer_list>
#include <vector>

#include "engine/device_variables.hpp"
#include "engine/operation.hpp"
#include "kernels/kernel_launch.hpp"
#include "simgpu/launch.hpp"

/// @file
/// What a launch may touch, as far as its arguments tell.

namespace simgpu {

/// The tracked addresses among the arguments, and the blocks that they point into as accesses:
/// reads through a pointer to const, writes through other pointers, both for addresses found in
/// structures.
struct ArgumentScan {
  std::vector<KernelLaunch::Pointer> pointers;
  std::vector<Access> accesses;
};

ArgumentScan scan_arguments(std::initializer_list<KernelArgument> arguments);

/// Lets a launch use the variables of its device, and what the pointers in them point to now. On
/// the executor, before it runs.
void add_variables(KernelLaunch& launch, const std::vector<PlacedVariable>& variables);

}  // namespace simgpu
