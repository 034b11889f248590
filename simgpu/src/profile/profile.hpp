#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/call_site.hpp"
#include "profile/fields.hpp"

/// @file
/// The profile of a program (LOCKSTEP_SIM_PROFILE): one record, a line of JSON, for each thing that
/// it asked of the devices. docs/simulated-gpu.md describes them.

namespace simgpu::profile {

/// True if a profile is written; costs one load.
bool is_on() noexcept;

/// Opens the file if one is written. Ranges that lockstep opens (TraceRange) name the op of each
/// record from then on, and those called "step" become records of their own. Called once, by the
/// program's first call. A file that cannot be written ends the process with a message.
void begin();

/// A range of the program begins, or the innermost one ends: it names the op of each record in it.
/// The outermost ones are records of their own.
void begin_range(std::string_view name);
void end_range();

/// When and where the program asked for something: the beginning of its record.
struct Origin {
  std::uint64_t id = 0;  ///< in the order of the calls; 0: nothing is recorded
  double host_us = 0;    ///< on the calling thread's own clock: without the time in simulated calls
  int thread = 0;        ///< of the host, in the order of their first calls
  std::string op;        ///< innermost range that is open: "layer_norm backward"; empty: none
};

/// The calling thread asks for something now.
Origin ask();

/// Writes a record. Thread-safe.
void write(const Origin& origin, const CallSite& site, const Fields& fields);
/// The same, for what happens in the call itself, at the caller's place.
void write_now(const Fields& fields);

/// The device is not done with what the calling thread asked for: what it does until its next call
/// is waiting, and none of its own work.
void answered_not_ready() noexcept;
/// How often in a row that was answered before; starts anew.
int take_polls() noexcept;

/// The clock of the calling thread (Origin::host_us) stands still while one lives: in functions of
/// the simulated libraries, and in waits for other threads. They nest.
class HostClockPause {
 public:
  HostClockPause() noexcept : counts_(is_on()) {
    if (counts_) enter();
  }
  HostClockPause(const HostClockPause&) = delete;
  HostClockPause& operator=(const HostClockPause&) = delete;
  ~HostClockPause() {
    if (counts_) leave();
  }

 private:
  static void enter() noexcept;
  static void leave() noexcept;

  const bool counts_;
};

}  // namespace simgpu::profile
