#pragma once

#include <cstdint>

namespace lockstep::checkpoint {

/// Notes for the supervisor of a run that this rank has completed a step: in a page of memory that
/// outlives the rank, whose path lockstep_run gives in LOCKSTEP_RUN_PROGRESS. Without one it does
/// nothing. Costs a nanosecond.
void note_progress(std::int64_t step) noexcept;

/// Notes there that the checkpoint of a step is in its place. From any thread.
void note_saved(std::int64_t step) noexcept;

}  // namespace lockstep::checkpoint
