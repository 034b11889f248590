#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

/// @file
/// What a program may ask of the simulated GPU beyond CUDA's own functions.
///
/// Environment: LOCKSTEP_SIM_DEVICES (count; one a local rank), LOCKSTEP_SIM_MEMORY (bytes of each,
/// 8 GiB), LOCKSTEP_SIM_SEED (0), LOCKSTEP_SIM_ORDER=random|early|late,
/// LOCKSTEP_SIM_ON_FINDING=report|abort, LOCKSTEP_SIM_LEAKS=1, LOCKSTEP_SIM_KEEP
/// ("CachingPool;WorkspaceCache": parts of the names of functions that keep what they make for the
/// life of the process), LOCKSTEP_SIM_FAULT (see `inject`), LOCKSTEP_SIM_COVERAGE
/// (a file to which what was reached is appended), LOCKSTEP_SIM_PROFILE (a file for a profile),
/// LOCKSTEP_SIM_EXECUTE=all|sample|none (how much of the work is done), LOCKSTEP_SIM_HOST_WAITS=1
/// (HostWaits of the whole process are printed at its end), LOCKSTEP_SIM_WATCH=0 (what kernels read
/// and write goes unchecked and takes less time), LOCKSTEP_SIM_NOTES=1 (tells what is no fault,
/// such as a value that many threads store), LOCKSTEP_SIM_HOST_THREADS=together|apart (see
/// `hand_over`).

namespace simgpu {

/// Makes calls fail. Faults are separated by semicolons; all count from 1, from now on:
///  - `cudaMalloc:3:2`: the third call of cudaMalloc fails with code 2
///  - `out-of-memory:1000000`: a device holds no more than so many bytes
///  - `stall-stream:2`: the stream that reports call "stream 2" never goes on
///  - `hang-collective:5`: the fifth collective never completes
///  - `sticky-error:7:700`: the seventh operation that is queued ends with an error after which all
///    calls fail
///
/// @throws std::invalid_argument if the text means nothing
void inject(std::string_view faults);

/// Forgets all faults that have not struck.
void clear_faults();

/// With LOCKSTEP_SIM_HOST_THREADS=apart, what one thread of the host has waited for says nothing
/// about another, unless a lock, a semaphore or the like passed from one to the other since. Where
/// threads wait for each other by atomics or futures, which cannot be seen, the one calls
/// `hand_over` before and the other `take_over` after, with the same address.
void hand_over(const void* place);
void take_over(const void* place);

/// Findings so far.
std::size_t findings();

/// Kernels that were queued so far, by any thread.
std::size_t launches();

/// Graphs that were launched so far, by any thread.
std::size_t graph_launches();

/// Graphs that were instantiated so far of work on streams of another priority than the default's,
/// without cudaGraphInstantiateFlagUseNodePriority: they have lost it.
std::size_t graphs_without_priorities();

/// Counts, while it lives, the calls of any thread in which the host waits for a device, or may
/// have to: synchronisations of streams, events and devices; copies from and to host memory that is
/// not pinned; freeing device or pinned memory. Asking whether something is done is none.
class HostWaits {
 public:
  HostWaits();
  HostWaits(const HostWaits&) = delete;
  HostWaits& operator=(const HostWaits&) = delete;
  ~HostWaits();

  /// How many so far.
  std::size_t count() const;
  /// A line for each call and place: "  2 x cudaStreamSynchronize at ..."; empty if there were
  /// none.
  std::string describe() const;

  struct Record;

 private:
  std::unique_ptr<Record> record_;
};

/// Reports what was made and not destroyed, by the place that made it. @return how many objects.
/// Happens at the end of the process by itself with LOCKSTEP_SIM_LEAKS=1.
std::size_t report_leaks();

/// All objects that live now are kept on purpose, for the life of the process.
void keep_live_objects();

/// Objects made in its scope, by any thread, are kept on purpose: around the code that fills a
/// cache or makes a singleton that is never destroyed.
class KeepObjects {
 public:
  KeepObjects();
  KeepObjects(const KeepObjects&) = delete;
  KeepObjects& operator=(const KeepObjects&) = delete;
  ~KeepObjects();
};

}  // namespace simgpu
