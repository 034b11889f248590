#pragma once

#include <chrono>

#include "base/call_site.hpp"
#include "nccl/call.hpp"
#include "nccl/communicator.hpp"

/// @file
/// What is said when ranks do not come together.

namespace simgpu::nccl {

/// Reports that some ranks have registered the buffers of a call that all made, and others have
/// not: once, by the first of the ranks.
void report_partly_registered(const Communicator& communicator, const Call& call,
                              const CallSite& site);

/// Reports the calls of all ranks in one line, followed by this rank's call site. Only the lowest
/// of the ranks that see it says anything.
void report_disagreement(const Communicator& communicator, const Call& call, const CallSite& site);

/// Prints which ranks have not come to a call that waits for long.
void warn_about_absence(const Communicator& communicator, const Call& call, const CallSite& site,
                        std::chrono::nanoseconds waited);

}  // namespace simgpu::nccl
