#pragma once

#include <chrono>
#include <cstddef>
#include <ostream>
#include <string>
#include <vector>

/// @file
/// What one backward did on the wire, and when.

namespace lockstep::parallel {

/// Clock of all times of a trace.
using TraceClock = std::chrono::steady_clock;

/// One bucket's all-reduce; of a communication hook, one of its collectives.
struct BucketTrace {
  std::string label;       ///< number of the bucket and its parameters
  std::size_t bucket = 0;  ///< number of the bucket
  std::size_t bytes = 0;
  TraceClock::time_point launched;  ///< handed to the communicator
  TraceClock::time_point started;   ///< began to run (equal to launched where not known)
  TraceClock::time_point finished;  ///< result complete on this rank
};

/// One synchronised backward, from the first gradient to the last result.
struct ReducerTrace {
  TraceClock::time_point first_gradient;  ///< the first parameter became ready
  TraceClock::time_point backward_end;    ///< the last op's backward returned
  TraceClock::time_point synchronized;    ///< all results complete
  std::vector<BucketTrace> buckets;       ///< in launch order

  /// Seconds in which at least one all-reduce ran.
  double communication_seconds() const;
  /// Share of the communication that ran while backward computed, 0 to 1; 1 without communication.
  double hidden_share() const;
};

/// Writes one JSON object: times in microseconds from the first gradient.
std::ostream& operator<<(std::ostream& out, const ReducerTrace& trace);

}  // namespace lockstep::parallel
