#pragma once

#include "base/vector_clock.hpp"

/// @file
/// What each thread of the host knows to be over, and what it learns from the others.
///
/// By default all threads share one clock: how a program's threads wait for each other cannot be
/// seen completely (atomics are instructions, not calls), and a clock that knows too much misses
/// races, where one that knows too little would report false ones. With
/// LOCKSTEP_SIM_HOST_THREADS=apart each has its own, and learns from another by locks, condition
/// variables, semaphores, pthread_once, the start and the end of threads (interposed_pthread.cpp)
/// and `hand_over` of the public header.

namespace simgpu {

/// True with LOCKSTEP_SIM_HOST_THREADS=apart, from the first call of the runtime on.
bool host_threads_are_apart();
/// The first call of the runtime: threads are apart from now on. Before it, none knows anything.
void set_host_threads_apart();

/// The calling thread's clock, or the one of all threads, which wants the machine's mutex.
VectorClock& host_clock();
/// The calling thread's component of the clocks, 0 while it has none; host_component if shared.
Component& host_thread_component();

/// What the thread does next follows what an operation of the device follows, itself included: for
/// callbacks. All threads may learn from a callback, so that a shared clock takes it over too.
/// Wants the machine's mutex.
void follow_operation(const VectorClock& clock);

/// In its scope, locks that the thread takes are the simulated GPU's own and tell nothing.
class OwnLocks {
 public:
  OwnLocks();
  OwnLocks(const OwnLocks&) = delete;
  OwnLocks& operator=(const OwnLocks&) = delete;
  ~OwnLocks();
};

/// In its scope, inside one of OwnLocks, locks are the program's again: for callbacks.
class ProgramLocks {
 public:
  ProgramLocks();
  ProgramLocks(const ProgramLocks&) = delete;
  ProgramLocks& operator=(const ProgramLocks&) = delete;
  ~ProgramLocks();

 private:
  unsigned before_;
};

/// What a new thread knows from its start on, and how its end becomes known.
class ThreadStart {
 public:
  /// On the thread that starts the other.
  ThreadStart();
  /// On the new thread: knows what its creator knew.
  void begin() const;
  /// Last thing on it: leaves what it knows at a place.
  static void end(const void* place);

 private:
  VectorClock clock_;
};

/// As the public functions of these names, for interposed functions: nothing unless threads are
/// apart and the thread is not in the scope of an OwnLocks.
void leave_clock_at(const void* place);
void take_clock_from(const void* place);

}  // namespace simgpu
