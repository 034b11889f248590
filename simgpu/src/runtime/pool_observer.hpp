#pragma once

/// @file
/// How the simulated GPU learns of the blocks of lockstep's pools.

namespace simgpu {

/// Becomes lockstep's block observer, once, unless the program has set one.
void observe_pools();

}  // namespace simgpu
