#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

/// @file
/// All programs, with their faults and without.

namespace planted {

/// Runs each program with its fault, in each of the three orders, and prints a table. A run that
/// was late, and did not show its fault, is made again, twice at most; "LATE" if all were.
/// @param only the name of a fault, or empty for all. @return how many were missed in one of them:
/// no report of the kind expected that names the place, or reports of other kinds beside it.
int run_table(std::string_view only);

/// Runs each program without its fault: over the seeds 1 to `seeds`, once early and once late.
/// Prints what was reported nevertheless. @return how many runs reported something or failed.
int run_seeds(std::uint64_t seeds, std::string_view only);

}  // namespace planted
