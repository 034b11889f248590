#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <ostream>
#include <vector>

#include "lockstep/comm/communicator.hpp"
#include "lockstep/parallel/trace.hpp"

/// @file
/// Which rank the others wait for.

namespace lockstep::parallel {

/// What the ranks of a group waited for each other in their last steps. Clocks of hosts differ, so
/// it goes by durations alone: a collective takes each rank what the slowest of them takes it, and
/// the wait for the last one to come, who waits for nobody. In each step, the rank that its
/// collectives took least held up the others, by what they took those longer.
struct StragglerReport {
  /// What a rank did in these steps.
  struct Rank {
    double waited = 0;     ///< seconds in which others held it up
    double held_up = 0;    ///< seconds in which it held up the others; their mean
    std::size_t last = 0;  ///< steps in which the others waited for it
  };
  std::size_t steps = 0;    ///< how many were timed
  double seconds = 0;       ///< that they took, from begin to begin of their backwards
  std::vector<Rank> ranks;  ///< by rank

  /// The rank that held up the others longest; 0 without steps.
  int straggler() const;
  /// Share of the time in which a rank held up the others, 0 to 1.
  double share(int rank) const;
};

/// "rank 2 held the others up for 93 % of the last 64 steps (18.2 s of 19.6 s), ...".
std::ostream& operator<<(std::ostream& out, const StragglerReport& report);

/// Notes what the collectives of each step take this rank. Costs no collective and waits for
/// nothing; steps are read once they have ended. One thread at a time.
class StepTimes {
 public:
  /// So many steps are kept.
  static constexpr std::size_t most_steps = 64;

  /// A step begins, and the one before ends.
  void begin();
  /// A collective of the step.
  void add(comm::Work work);

  /// Lets what communicates within a forward or backward know whose step that is, on the calling
  /// thread until the end of scope.
  class Scope {
   public:
    /// @param times null: nobody's.
    explicit Scope(std::shared_ptr<StepTimes> times) noexcept;
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    std::shared_ptr<StepTimes> previous_;
  };
  /// Those of the calling thread's innermost scope, or null.
  static const std::shared_ptr<StepTimes>& current() noexcept;

  /// Compares the steps that have ended. Blocks; every rank must call it after the same steps.
  /// @return the same on every rank.
  StragglerReport compare(comm::Communicator& group);

 private:
  struct Step {
    TraceClock::time_point begun;
    double collectives = 0;              // seconds of those that were read
    std::vector<comm::Work> works = {};  // the others
  };
  static void read(Step& step);

  std::deque<Step> steps_;  // the last one is under way
};

}  // namespace lockstep::parallel
