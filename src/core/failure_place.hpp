#pragma once

#include <string>

/// @file
/// Where exceptions come from, for who ends the job: they may be of any type, which stays theirs.

namespace lockstep {

/// Notes of the exception that is being handled where it comes from. Of the last few that were
/// noted it is known, on all threads; these live on.
void note_failure_place(std::string place) noexcept;

/// What was noted of the exception that is being handled; empty if nothing was.
std::string failure_place();

}  // namespace lockstep
