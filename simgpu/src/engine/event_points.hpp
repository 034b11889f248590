#pragma once

#include <vector>

#include "engine/machine.hpp"

/// @file
/// Events as points of a queue's order. All functions want the machine's mutex held.

namespace simgpu {

/// The event stands for all that is in the queue now.
void record_point(CUevent_st& event, Queue& queue, VirtualTime now);

/// Lets the queue's next task follow what the event stands for, if it was recorded.
void follow_point(const CUevent_st& event, Queue& queue, std::vector<TaskPtr>& after);

}  // namespace simgpu
