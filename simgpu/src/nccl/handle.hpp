#pragma once

#include <memory>

#include "nccl.h"
#include "nccl/communicator.hpp"

/// @file
/// From the program's handles to communicators.

namespace simgpu::nccl {

/// A new handle; it counts as an object of the program until it is taken back.
ncclComm_t make_handle(std::shared_ptr<Communicator> communicator);
/// @throws Failure if it is no handle, or was destroyed or aborted
std::shared_ptr<Communicator> communicator_of(ncclComm_t handle);
/// Ends a handle, whose communicator leaves its group. @throws Failure as `communicator_of`
void end_handle(ncclComm_t handle);

}  // namespace simgpu::nccl
