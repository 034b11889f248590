#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <iomanip>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "lockstep/comm/work.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/intrusive_ptr.hpp"

namespace lockstep::comm {

/// The last operations of a group that ended on this rank, and what all of them took: what a rank
/// tells of itself when its job ends early. Not for several threads at once.
/// @tparam State a WorkState with a `description()`.
template <class State>
class EndedOperations {
 public:
  using Pointer = IntrusivePtr<State>;
  using Clock = WorkTimes::Clock;

  /// Another one has ended well, just now.
  void add(Pointer work) {
    const auto duration = work->duration();
    if (duration) seconds_ += seconds_of(*duration);
    ended_[count_++ % ended_.size()] = {std::move(work), duration, Clock::now()};
  }

  /// The one that ended last; null if there is none.
  const State* last() const { return count_ ? nth_last(0).work.get() : nullptr; }

  /// "in operations for 2.9 s of 3.1 s", since the group was made: a rank that the others wait for
  /// has less of it than they have, for waiting is a part of it.
  /// @param under_way seconds of one that has not ended.
  std::string share(double under_way = 0) const {
    lockstep::detail::TextStream out;
    out << std::setprecision(3) << "in operations for " << seconds_ + under_way << " s of "
        << seconds_of(Clock::now() - made_) << " s";
    return out.str();
  }

  /// A line for each of the last ones, the latest first; empty if there are none. Asks nothing of a
  /// device, which may hang.
  /// @param from leaves out so many.
  std::string lines(std::size_t from = 0) const {
    lockstep::detail::TextStream out;
    out << std::fixed << std::setprecision(1);
    for (std::size_t i = from; i < std::min(count_, ended_.size()); ++i) {
      const auto& [work, duration, seen] = nth_last(i);
      out << "\n  before: " << work->description();
      if (duration)
        out << ", took " << 1e3 * seconds_of(*duration) << " ms, ended "
            << 1e3 * seconds_of(Clock::now() - seen) << " ms ago";
    }
    return out.str();
  }

 private:
  struct Ended {
    Pointer work;
    std::optional<Clock::duration> duration;
    Clock::time_point seen;
  };

  static double seconds_of(Clock::duration duration) {
    return std::chrono::duration<double>(duration).count();
  }
  const Ended& nth_last(std::size_t n) const { return ended_[(count_ - 1 - n) % ended_.size()]; }

  std::array<Ended, 5> ended_;
  std::size_t count_ = 0;
  double seconds_ = 0;
  Clock::time_point made_ = Clock::now();
};

}  // namespace lockstep::comm
