#pragma once

#include <cstdint>

#include "lockstep/comm/run_progress.hpp"

/// @file
/// What a rank and the supervisor of its run tell each other, in a page of memory that outlives the
/// rank and whose path lockstep_run gives in LOCKSTEP_RUN_PROGRESS. Without one the rank alone
/// knows its step. From any thread; costs a nanosecond.

namespace lockstep::comm {

/// Notes that the checkpoint of a step is in its place.
void note_saved(std::int64_t step) noexcept;

/// Notes that no step is to come.
void note_end_of_steps() noexcept;

/// Notes for this rank alone that it has made a step, of which an evaluation or a save may be left
/// to do; note_progress does, too.
void note_step(std::int64_t step) noexcept;
/// Tells the supervisor of a step, and this rank nothing: one that was loaded or saved need not be
/// the last that it made.
void tell_step(std::int64_t step) noexcept;
/// The step that was noted last, also under no supervisor; -1 before, and when no step is to come.
std::int64_t last_step() noexcept;

/// Whether the supervisor has asked, since the last call, what this rank is at. One thread.
bool is_report_asked_for() noexcept;

}  // namespace lockstep::comm
