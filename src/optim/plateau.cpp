#include "lockstep/optim/plateau.hpp"

#include <algorithm>
#include <cmath>

#include "optim/option_checks.hpp"

namespace lockstep::optim {

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, const ReduceLROnPlateauOptions& options)
    : optimizer_(optimizer), options_(options) {
  LOCKSTEP_CHECK(options.factor > 0 && options.factor < 1, InvalidArgument,
                 "ReduceLROnPlateau: factor is ", options.factor, "; it must be in (0, 1)");
  check_not_negative("ReduceLROnPlateau", {{"patience", static_cast<double>(options.patience)},
                                           {"threshold", options.threshold},
                                           {"cooldown", static_cast<double>(options.cooldown)},
                                           {"min_lr", options.min_lr},
                                           {"eps", options.eps}});
  const double infinity = std::numeric_limits<double>::infinity();
  state_.best = options.maximize ? -infinity : infinity;
}

bool ReduceLROnPlateau::is_better(double metric) const {
  const double sign = options_.maximize ? 1.0 : -1.0;
  // The share of infinity is no number.
  const double margin = options_.relative && std::isfinite(state_.best)
                            ? sign * options_.threshold * state_.best
                            : sign * (options_.relative ? 0.0 : options_.threshold);
  return options_.maximize ? metric > state_.best + margin : metric < state_.best + margin;
}

void ReduceLROnPlateau::step(double metric) {
  LOCKSTEP_CHECK(!std::isnan(metric), InvalidArgument,
                 "ReduceLROnPlateau: the metric is NaN; training has diverged");
  if (is_better(metric)) {
    state_.best = metric;
    state_.bad_steps = 0;
  } else {
    ++state_.bad_steps;
  }
  if (state_.cooldown_left > 0) {
    --state_.cooldown_left;
    state_.bad_steps = 0;
  }
  if (state_.bad_steps <= options_.patience) return;
  state_.cooldown_left = options_.cooldown;
  state_.bad_steps = 0;
  for (std::size_t group = 0; group < optimizer_.group_count(); ++group) {
    const double before = optimizer_.lr(group);
    const double after = std::max(before * options_.factor, options_.min_lr);
    if (before - after > options_.eps) optimizer_.schedule_lr(after, group);
  }
}

}  // namespace lockstep::optim
