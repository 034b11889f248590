#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/report.hpp"
#include "engine/operation.hpp"

/// @file
/// Whether an access is allowed, for ranges of any size, and why not.

namespace simgpu {

/// What is wrong with an access.
struct AccessProblem {
  Finding finding = Finding::out_of_bounds;
  /// "reads 4 bytes 16 past the end of block of ...": for a report that adds who did it.
  std::string text;
};

/// What is wrong with an access in the device's view; nothing if it is allowed or not tracked.
/// Reads of bytes that nothing wrote are problems if `needs_values`.
std::optional<AccessProblem> problem_of(const Access& access, bool needs_values = true);

/// Reports each access of an operation that is not allowed now. For `run` of operations other than
/// kernels, on the executor thread, before they touch anything. @return true if all are allowed.
bool check_accesses(const Operation& operation, bool needs_values = true);
/// The same with the parts of an operation that its `run` still knows.
bool check_accesses(const std::string& name, const CallSite& site,
                    const std::vector<Access>& accesses, bool needs_values = true);

/// Whether a device that does not know the ends of blocks can make the access: all bytes lie on the
/// pages of one allocation.
bool is_reachable(const Access& access);

/// Notes that an operation has written what it declared as written.
void mark_written(const std::vector<Access>& accesses);

}  // namespace simgpu
