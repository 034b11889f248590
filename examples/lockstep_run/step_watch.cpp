#include "lockstep_run/step_watch.hpp"

#include <algorithm>

namespace run {
namespace {

using std::chrono::seconds;

constexpr int factor = 10;
// A longer one was this process' own absence.
constexpr seconds longest_look_interval(2);

}  // namespace

void StepWatch::begin() {
  step_ = -1;
  steps_ = 0;
  standing_ = {};
  is_in_long_work_ = is_reported_ = false;
}

StepWatch::Finding StepWatch::look(std::int64_t step, bool is_in_long_work, Clock::time_point now) {
  standing_ += std::min<Clock::duration>(now - last_look_, longest_look_interval);
  last_look_ = now;
  if (step != step_) {
    if (steps_ == 2 && is_pure_) longest_ = std::max(longest_, standing_);
    steps_ = std::min(steps_ + 1, 2);
    step_ = step;
    is_pure_ = true;
    is_reported_ = false;
    standing_ = {};
  }
  if (is_in_long_work != is_in_long_work_) standing_ = {};
  is_in_long_work_ = is_in_long_work;
  is_pure_ &= !is_in_long_work;
  if (step < 0) return Finding::none;
  if (options_.restart > seconds(0) && standing_ >= limit(options_.restart))
    return Finding::restart;
  if (options_.report == seconds(0) || is_reported_ || standing_ < limit(options_.report))
    return Finding::none;
  is_reported_ = true;
  return Finding::report;
}

seconds StepWatch::standing() const { return std::chrono::duration_cast<seconds>(standing_); }

StepWatch::Clock::duration StepWatch::limit(seconds least) const {
  const bool is_in_a_step = steps_ == 2 && !is_in_long_work_;
  return std::max<Clock::duration>(is_in_a_step ? least : factor * least, factor * longest_);
}

}  // namespace run
