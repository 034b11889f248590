#pragma once

/// @file
/// Calls that make the host wait for a device, by the place that made them.

namespace simgpu {

/// The calling thread waits, or may have to, in `call`, a literal ("cudaStreamSynchronize"). Costs
/// one load unless somebody counts: HostWaits of the public header.
void note_host_wait(const char* call);

/// With LOCKSTEP_SIM_HOST_WAITS=1, counts from now on; called once, by the program's first call.
void begin_host_waits();
/// Prints what was counted since, if anything was to be.
void report_host_waits();

}  // namespace simgpu
