#pragma once

#include <cstdint>

/// @file
/// What a rank tells the supervisor of its run, lockstep_run, so that this finds a run that stands
/// still. train::Loop does so, and so does a checkpoint::Manager that is called behind each step;
/// this is for loops of one's own without either. Where an exception ends the job, the step is
/// told, too. From any thread; costs a nanosecond.

namespace lockstep::comm {

/// Notes that this rank has completed a step.
/// @param step its number, or how many were made: grows.
void note_progress(std::int64_t step) noexcept;

/// Notes, while it lives, that the rank is in what may take far longer than a step: an evaluation,
/// a load, a wait for a store.
class LongWork {
 public:
  /// It begins.
  LongWork() noexcept;
  LongWork(const LongWork&) = delete;
  LongWork& operator=(const LongWork&) = delete;
  /// It ends.
  ~LongWork();
};

}  // namespace lockstep::comm
