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
  const double reference = state_.reference.value_or(state_.best);
  if (metric < reference - options_.min_delta) {
    state_ = {.best = metric, .best_step = step, .bad_evaluations = 0};
    return true;
  }
  ++state_.bad_evaluations;
  if (!(metric < state_.best)) return false;
  state_.best = metric;
  state_.best_step = step;
  state_.reference = reference;
  return true;
}

checkpoint::ValueState state_of(EarlyStopping& stopping) {
  return {.values =
              [&stopping] {
                const EarlyStopping::State& state = stopping.state();
                checkpoint::Values values{{"best", state.best},
                                          {"best_step", state.best_step},
                                          {"bad_evaluations", state.bad_evaluations}};
                if (state.reference) values.set("reference", *state.reference);
                return values;
              },
          .load =
              [&stopping](const checkpoint::Values& values) {
                EarlyStopping::State state{
                    .best = values.get<double>("best"),
                    .best_step = values.get<std::int64_t>("best_step"),
                    .bad_evaluations = values.get<std::int64_t>("bad_evaluations")};
                if (values.contains("reference")) state.reference = values.get<double>("reference");
                stopping.set_state(state);
              }};
}

}  // namespace lockstep::train
