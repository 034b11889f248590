#include "lockstep_run/restart_policy.hpp"

#include <algorithm>

#include <lockstep/core/error.hpp>

namespace run {

using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

milliseconds delay_of(int deaths_in_a_row) {
  constexpr int doublings = 6;  // 64 s is more than the longest
  if (deaths_in_a_row < 2) return milliseconds(0);
  const int times = 1 << std::min(deaths_in_a_row - 2, doublings);
  return std::min<milliseconds>(seconds(times), seconds(60));
}

}  // namespace

RestartPolicy::Decision RestartPolicy::after_death(std::optional<std::int64_t> step,
                                                   bool is_of_the_host) {
  using lockstep::detail::concat;
  const bool is_new_ground = step && (!furthest_ || *step > *furthest_);
  if (is_new_ground) {
    furthest_ = step;
    deaths_there_ = deaths_in_a_row_ = 0;
    early_exits_.clear();
  }
  ++deaths_in_a_row_;
  if (step && step == furthest_ && !is_of_the_host) ++deaths_there_;
  if (options_.deaths_per_step > 0 && deaths_there_ >= options_.deaths_per_step)
    return {concat("the step behind step ", *furthest_, " died ", deaths_there_,
                   " times: another start would do the same"),
            {}};
  if (restarts_ >= options_.max_restarts)
    return {concat("it was started again ", restarts_, " times, as often as --max-restarts allows"),
            {}};
  ++restarts_;
  return {{}, delay_of(deaths_in_a_row_)};
}

RestartPolicy::Decision RestartPolicy::after_early_exit(int code) {
  const int exits = ++early_exits_[code];
  if (options_.deaths_per_step > 0 && exits >= options_.deaths_per_step)
    return {lockstep::detail::concat("it ended with code ", code, " before its first step, ", exits,
                                     " times: another start would do the same"),
            {}};
  return after_death(std::nullopt);
}

}  // namespace run
