#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/observe/trace_range.hpp"

/// @file
/// Where the time of a step goes, op by op.

namespace lockstep {

/// What the calls of an op took, on all threads together.
struct OpTime {
  std::string op;
  TracePhase phase = TracePhase::forward;
  std::int64_t calls = 0;
  std::chrono::nanoseconds total{0};  ///< from their beginnings to their ends
  std::chrono::nanoseconds own{0};    ///< of it, what no op within them took
};

/// Adds up the time of ops and of nodes of backward while it lives, by name. On a GPU, where ops
/// are queued, it is that of the host alone. Costs some 0.1 us an op.
///
///     OpProfile profile;
///     for (int i = 0; i < 10; ++i) step(batch);
///     std::cout << profile.table();
///
/// Several may live at once. Counted are ops that begin and end while it lives.
class OpProfile {
 public:
  /// Begins to count.
  OpProfile();
  OpProfile(const OpProfile&) = delete;
  OpProfile& operator=(const OpProfile&) = delete;
  ~OpProfile();

  /// What was counted so far, the most own time first. Any thread may call it.
  std::vector<OpTime> times() const;
  /// The first `rows` of them as text, with a line of names above and of sums below.
  std::string table(std::size_t rows = 20) const;
  /// Forgets what was counted.
  void reset();

 private:
  class Sink;
  Sink& sink_;
};

}  // namespace lockstep
