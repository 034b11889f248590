#pragma once

#include <memory>

#include "nccl.h"
#include "nccl/communicator.hpp"

/// @file
/// What new communicators do in the background.

namespace simgpu::nccl {

/// Joins the ranks of a unique id. @throws Failure
void create(Communicator& communicator, const ncclUniqueId& id);

/// Takes part in a split of `parent`, the `number`th, and joins the ranks of the same colour.
/// @param child null for a rank without a colour. @throws Failure
void split(Communicator& parent, std::uint64_t number, int color, int key, Communicator* child);

}  // namespace simgpu::nccl
