#pragma once

#include <cstdint>

#include "lockstep/checkpoint/save_interval.hpp"
#include "lockstep/comm/communicator.hpp"

/// @file
/// When to save next, where that depends on times.

namespace lockstep::checkpoint {

/// What ranks have measured; of several ranks the largest.
struct Measured {
  double since_save = 0;  ///< seconds since the last save began, or since training did
  double a_step = 0;      ///< seconds
  double stall = 0;       ///< for which the last save kept training, in seconds; 0: there was none
  double writing = 0;     ///< how long it was written and read back, beside training
};

/// Of each number the largest of all ranks. Every rank must call it.
Measured largest(comm::Communicator& group, const Measured& own);

/// Decides from what all ranks know alike, at steps that are the same on all.
class Pace {
 public:
  explicit Pace(const SaveInterval& interval) : interval_(interval) {}

  /// The step at which it has to be asked next.
  std::int64_t next_question() const noexcept { return next_; }
  /// A training begins, or goes on, after so many steps.
  void begin(std::int64_t step) noexcept;
  /// Whether to save after a step; moves the next question on.
  bool decide(std::int64_t step, const Measured& measured) noexcept;
  /// How many seconds shall pass between saves that cost so much.
  double seconds(const Measured& measured) const noexcept;

 private:
  SaveInterval interval_;
  std::int64_t next_ = 0;
};

}  // namespace lockstep::checkpoint
