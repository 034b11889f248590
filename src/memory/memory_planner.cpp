#include "lockstep/memory/memory_planner.hpp"

#include "lockstep/runtime/stream.hpp"
#include "memory/allocator_override.hpp"
#include "memory/planned_memory.hpp"

namespace lockstep {

MemoryPlanner::MemoryPlanner(Device device) : memory_(PlannedMemory::borrow(device)) {}
MemoryPlanner::~MemoryPlanner() { memory_.give_back(); }

MemoryPlanner::Step MemoryPlanner::step() { return Step(memory_); }
MemoryPlannerStatistics MemoryPlanner::statistics() const { return memory_.planner_statistics(); }

MemoryPlanner::Step::Step(PlannedMemory& memory)
    : memory_(memory),
      override_(std::make_unique<detail::AllocatorOverride>(memory.device(), memory)) {
  memory.begin_step(current_stream(memory.device()));
}

MemoryPlanner::Step::~Step() {
  override_.reset();
  memory_.end_step();
}

}  // namespace lockstep
