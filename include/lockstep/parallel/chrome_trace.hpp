#pragma once

#include <cstddef>
#include <filesystem>
#include <set>
#include <string>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/parallel/trace.hpp"

/// @file
/// Backwards of all ranks for chrome://tracing and Perfetto.

namespace lockstep::parallel {

/// Collects the backwards of a job: for each rank a track of its computation and one of its
/// collectives, or such a pair for each replica that a backward goes through. Moments of different
/// hosts are put side by side by a barrier, so to some tens of microseconds.
class ChromeTrace {
 public:
  /// Time counts from here. Blocks; every rank must call it.
  explicit ChromeTrace(comm::Communicator& group);

  /// Adds the last backward of this rank, as Reducer::trace gives it; none of a captured one, nor
  /// one that was added. Of a backward through several replicas, add the trace of each.
  void add(const ReducerTrace& trace);
  /// Writes what all ranks have added, in the trace event format (JSON). Rank 0 does; blocks, and
  /// every rank must call it. @throws InvalidArgument on rank 0 if the file cannot be written.
  void write(const std::filesystem::path& path) const;

 private:
  int tracks_of(std::size_t replica);
  void add_event(const std::string& name, int track, TraceClock::time_point begin,
                 TraceClock::time_point end, const std::string& arguments = {});

  comm::Communicator& group_;
  TraceClock::time_point origin_, former_end_;
  std::set<TraceClock::time_point> told_;  // first gradients
  std::size_t of_backward_ = 0, replicas_ = 0;
  std::string events_;
};

}  // namespace lockstep::parallel
