#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <iomanip>
#include <sstream>
#include <string>
#include <utility>

#include "lockstep/comm/work.hpp"
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

  /// Another one has ended well.
  void add(Pointer work) {
    if (const auto duration = work->duration()) seconds_ += seconds_of(*duration);
    works_[count_++ % works_.size()] = std::move(work);
  }

  /// The one that ended last; null if there is none.
  const State* last() const { return count_ ? nth_last(0) : nullptr; }

  /// "in operations for 2.9 s of 3.1 s", since the group was made: a rank that the others wait for
  /// has less of it than they have, for waiting is a part of it.
  /// @param under_way seconds of one that has not ended.
  std::string share(double under_way = 0) const {
    std::ostringstream out;
    out << std::setprecision(3) << "in operations for " << seconds_ + under_way << " s of "
        << seconds_of(Clock::now() - made_) << " s";
    return out.str();
  }

  /// A line for each of the last ones, the latest first; empty if there are none.
  /// @param from leaves out so many.
  std::string lines(std::size_t from = 0) const {
    std::ostringstream out;
    out << std::fixed << std::setprecision(1);
    for (std::size_t i = from; i < std::min(count_, works_.size()); ++i) {
      out << "\n  before: " << nth_last(i)->description();
      if (const auto times = nth_last(i)->times())
        out << ", took " << 1e3 * seconds_of(times->finished - times->started) << " ms, ended "
            << 1e3 * seconds_of(Clock::now() - times->finished) << " ms ago";
    }
    return out.str();
  }

 private:
  static double seconds_of(Clock::duration duration) {
    return std::chrono::duration<double>(duration).count();
  }
  const State* nth_last(std::size_t n) const {
    return works_[(count_ - 1 - n) % works_.size()].get();
  }

  std::array<Pointer, 5> works_;
  std::size_t count_ = 0;
  double seconds_ = 0;
  Clock::time_point made_ = Clock::now();
};

}  // namespace lockstep::comm
