#pragma once

#include <cstdint>
#include <limits>

#include "lockstep/optim/optimizer.hpp"

/// @file
/// Learning rates that follow a metric.

namespace lockstep::optim {

/// Options of ReduceLROnPlateau, as PyTorch's.
struct ReduceLROnPlateauOptions {
  bool maximize = false;       ///< larger metrics are better
  double factor = 0.1;         ///< what rates are multiplied by
  std::int64_t patience = 10;  ///< calls without improvement that are let pass
  double threshold = 1e-4;     ///< least improvement that counts
  bool relative = true;        ///< the threshold is a share of the best metric
  std::int64_t cooldown = 0;   ///< calls after a reduction that do not count
  double min_lr = 0.0;
  double eps = 1e-8;  ///< least change of a rate
};

/// Lowers the learning rates of all groups once a metric improves no more:
///
///     optim::ReduceLROnPlateau plateau(optimizer, {.factor = 0.5, .patience = 3});
///     ... plateau.step(validation_loss);
///
/// In data parallelism the metric must be alike on all ranks (an all-reduced one), or their rates
/// differ, which the next reduction of gradients reports.
class ReduceLROnPlateau {
 public:
  /// @param optimizer must outlive it. @throws InvalidArgument for a factor outside (0, 1) or a
  /// negative option.
  explicit ReduceLROnPlateau(Optimizer& optimizer, const ReduceLROnPlateauOptions& options = {});

  /// Takes the metric of an epoch. @throws InvalidArgument for NaN.
  void step(double metric);

  /// All that a checkpoint must keep, beside the optimizer's state.
  struct State {
    double best;
    std::int64_t bad_steps = 0, cooldown_left = 0;
  };
  /// The state now.
  const State& state() const noexcept { return state_; }
  /// Goes on from a state.
  void set_state(const State& state) { state_ = state; }

 private:
  bool is_better(double metric) const;

  Optimizer& optimizer_;
  ReduceLROnPlateauOptions options_;
  State state_;
};

}  // namespace lockstep::optim
