#pragma once

/// @file
/// Threads that work beside training.

namespace lockstep::checkpoint {

/// Gives the calling thread a low priority, so that it takes a few percent of a processor that
/// training uses, and all of one that it leaves; not where the system refuses that.
void yield_to_training() noexcept;

}  // namespace lockstep::checkpoint
