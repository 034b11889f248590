#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "lockstep/core/device.hpp"

/// @file
/// Memory of training steps that are alike, planned once.

namespace lockstep {

class PlannedMemory;
namespace detail {
class AllocatorOverride;
}

/// What came of the steps of a MemoryPlanner.
struct MemoryPlannerStatistics {
  std::uint64_t recorded_steps = 0;  ///< served by the pool, to make a plan of them
  std::uint64_t planned_steps = 0;   ///< went as planned
  std::uint64_t other_steps = 0;     ///< the first, and those that did otherwise than planned
  std::size_t planned_bytes = 0;     ///< memory for all blocks of the plan; 0: there is none
  std::size_t most_live_bytes = 0;   ///< what these hold at a time at most: no plan needs less
};

/// Gives the tensors of training steps places that were worked out beforehand.
///
/// The pool of a device serves requests one by one, and cannot know what comes next. Steps of fixed
/// shapes are alike: the planner watches one, and from then on serves all that such a step
/// allocates and frees (requests beyond 64 KiB) from memory that is hardly larger than what lives
/// at a time. Whatever differs from the recorded step falls back to the pool: other sizes (a last
/// batch that is smaller), a tensor that is kept for longer, other streams. After two such steps in
/// a row the next one is recorded anew; where steps keep differing, more and more seldom.
///
///     ls::MemoryPlanner planner(ls::cuda(0));
///     for (const auto& batch : loader) {
///       const auto planned = planner.step();
///       ... forward, backward, optimizer ...
///     }
///
/// The plan's memory is the steps' alone: what runs between them (an evaluation) gets the pool's.
/// The first step is left to the pool, since it allocates what stays (optimizer states); the second
/// is recorded. Before the third the pool returns what it has cached, which waits for the device.
/// To the pool and its statistics the planned memory is one block, and one more for each large gap
/// between blocks that stay which it fills, with the tag "planned step".
/// With the pool "none" (LOCKSTEP_POOL) nothing is planned, so that memory checkers see each block.
/// What a `StepGraph` captures has memory of its own.
///
/// Tensors may outlive the step and the planner. For one thread, which runs the steps; tensors may
/// be freed by any.
class MemoryPlanner {
 public:
  class Step;

  /// @throws Unsupported where the build lacks the device.
  explicit MemoryPlanner(Device device);
  MemoryPlanner(const MemoryPlanner&) = delete;
  MemoryPlanner& operator=(const MemoryPlanner&) = delete;
  /// Returns the memory to the pool, as soon as no tensor is left in it.
  ~MemoryPlanner();

  /// Begins a step, which ends with the scope: what the calling thread allocates on the device, for
  /// its current stream, is part of it. @throws InvalidArgument within another step of this
  /// planner.
  [[nodiscard]] Step step();

  /// What came of the steps so far.
  MemoryPlannerStatistics statistics() const;

 private:
  PlannedMemory& memory_;
};

/// A step of a MemoryPlanner, until the end of scope, within the life of the planner.
class MemoryPlanner::Step {
 public:
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
  ~Step();

 private:
  friend class MemoryPlanner;
  explicit Step(PlannedMemory& memory);

  PlannedMemory& memory_;
  std::unique_ptr<detail::AllocatorOverride> override_;
};

}  // namespace lockstep
