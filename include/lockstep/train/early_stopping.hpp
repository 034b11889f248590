#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "lockstep/checkpoint/state.hpp"

/// @file
/// When a training that gets no better ends.

namespace lockstep::train {

/// Options of EarlyStopping; names are Keras'.
struct EarlyStoppingOptions {
  /// So many evaluations in a row without improvement end the training; 0: none do.
  std::int64_t patience = 0;
  /// Metrics must fall by more than this, since the last one that did, to be an improvement.
  double min_delta = 0;
};

/// Follows a metric, of which smaller is better (a loss, an error rate), and says which evaluation
/// was the best and when to stop:
///
///     train::EarlyStopping stopping({.patience = 3});
///     ... if (stopping.update(step, validation_loss)) save_best(); if (stopping.should_stop()) ...
///
/// A value. In data parallelism the metric must be alike on all ranks (train::Loop sees to that).
class EarlyStopping {
 public:
  /// @throws InvalidArgument for a negative option, or one that is not finite.
  explicit EarlyStopping(const EarlyStoppingOptions& options = {});

  /// Takes the metric of an evaluation after a number of steps. NaN is no improvement.
  /// @return true if it is the best so far, by however little.
  bool update(std::int64_t step, double metric);
  /// Whether it is time to stop.
  bool should_stop() const noexcept {
    return options_.patience > 0 && state_.bad_evaluations >= options_.patience;
  }

  /// All that a checkpoint must keep.
  struct State {
    double best = std::numeric_limits<double>::infinity();  ///< the metric of the best evaluation
    std::int64_t best_step = -1;                            ///< its step; -1: there was none
    std::int64_t bad_evaluations = 0;                       ///< in a row without improvement
    /// The metric of the last improvement, where `best` is within `min_delta` of it.
    std::optional<double> reference = {};
    friend bool operator==(const State&, const State&) = default;
  };
  /// The state now.
  const State& state() const noexcept { return state_; }
  /// Goes on from a state.
  void set_state(const State& state) noexcept { state_ = state; }

 private:
  EarlyStoppingOptions options_;
  State state_;
};

/// Its state, for checkpoint::Manager::add.
checkpoint::ValueState state_of(EarlyStopping& stopping);

}  // namespace lockstep::train
