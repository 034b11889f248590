#pragma once

#include <cstddef>
#include <functional>
#include <string>

/// @file
/// What the simulated GPU found wrong.

namespace simgpu {

/// The kinds of findings; `name` gives the word that a report starts with.
enum class Finding : unsigned char {
  race,           ///< two operations, nothing between them
  host_race,      ///< the host touched memory before the device was done
  host_access,    ///< the host touched device memory
  out_of_bounds,  ///< outside an allocation or pool block, or a guard overwritten
  misaligned,     ///< an address that is no multiple of the size of what lies there
  peer_access,    ///< memory of another device
  use_after_free,
  invalid_free,
  uninitialized_read,
  shared_memory_race,  ///< threads of a block, no barrier between them
  global_memory_race,  ///< threads of a launch, of one block or of two
  shared_memory_bounds,
  index_bounds,        ///< an array of a kernel indexed past its end, shared or of a thread
  barrier_divergence,  ///< a barrier or shuffle that some threads never reach
  stack_overflow,      ///< of a thread of a kernel
  endless_wait,        ///< for memory that no thread can change any more
  invalid_launch,
  capture,
  collective_mismatch,
  leak,
  lost_result,   ///< overwritten before anything read it
  registration,  ///< of a buffer with NCCL, against its rules
};

/// The word: "race", "out-of-bounds", ...
const char* name(Finding finding);

/// A finding and its whole text.
struct Report {
  Finding finding;
  std::string text;
};

/// Prints the report to stderr as one block, counts it, and with LOCKSTEP_SIM_ON_FINDING=abort ends
/// the process. A process with findings exits with code 66 unless it failed otherwise. The same
/// text is printed once. Any thread may call it.
void report(Finding finding, std::string text);

/// Prints what is no fault, but worth knowing, for those who asked (LOCKSTEP_SIM_NOTES).
void note(const std::string& text);

/// Findings so far, repetitions included.
std::size_t findings();

/// Tests: reports go to `sink` instead of stderr and the exit code, until it is set to nothing.
void set_report_sink(std::function<void(const Report&)> sink);

}  // namespace simgpu
