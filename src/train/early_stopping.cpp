#include "lockstep/train/early_stopping.hpp"

#include <cmath>

#include "lockstep/core/error.hpp"

namespace lockstep::train {

EarlyStopping::EarlyStopping(const EarlyStoppingOptions& options) : options_(options) {
  LOCKSTEP_CHECK(options.patience >= 0, InvalidArgument, "a patience of ", options.patience,
                 " evaluations; give a number from 0 on");
  LOCKSTEP_CHECK(std::isfinite(options.min_delta) && options.min_delta >= 0, InvalidArgument,
                 "a min_delta of ", options.min_delta, "; give a number from 0 on");
}

bool EarlyStopping::update(std::int64_t step, double metric) {
  if (!(metric < state_.best - options_.min_delta)) {
    ++state_.bad_evaluations;
    return false;
  }
  state_ = {.best = metric, .best_step = step, .bad_evaluations = 0};
  return true;
}

checkpoint::ValueState state_of(EarlyStopping& stopping) {
  return {
      .values =
          [&stopping] {
            const EarlyStopping::State& state = stopping.state();
            return checkpoint::Values{{"best", state.best},
                                      {"best_step", state.best_step},
                                      {"bad_evaluations", state.bad_evaluations}};
          },
      .load =
          [&stopping](const checkpoint::Values& values) {
            stopping.set_state({.best = values.get<double>("best"),
                                .best_step = values.get<std::int64_t>("best_step"),
                                .bad_evaluations = values.get<std::int64_t>("bad_evaluations")});
          }};
}

}  // namespace lockstep::train
