#pragma once

#include <cstdint>
#include <filesystem>

#include "lockstep/checkpoint/manager.hpp"
#include "lockstep/train/early_stopping.hpp"

/// @file
/// What a training loop is told.

namespace lockstep::train {

/// Options of a Loop. At least one of `steps` and `epochs` is given.
struct LoopOptions {
  std::int64_t steps = 0;       ///< of the whole run, over all starts; 0: as `epochs` says
  std::int64_t epochs = 0;      ///< passes over the batches; 0: as `steps` says
  std::int64_t eval_every = 0;  ///< steps from one evaluation to the next; 0: not by steps
  EarlyStoppingOptions early_stopping = {};
  /// Ends the run on all ranks, unsaved, where a loss is not finite: `run` returns
  /// Loop::not_finite. Known one step late, and before anything is saved; losses are read, and
  /// ranks ask each other with each step. Without it a loss that has not been finite for ten steps
  /// is told as a warning, once. Lightning's and Keras' name.
  bool terminate_on_nan = false;
  std::filesystem::path checkpoint_dir = {};  ///< empty: no checkpoints, and signals end the run
  /// With `keep_best`, the default, an evaluation that was never better is saved, and stays.
  checkpoint::ManagerOptions checkpoints = {};
  bool resume = true;  ///< from the newest checkpoint, if there is one
  /// A checkpoint, also of another run, in the place of the newest: at the first start. Where the
  /// newest is of a run that began with this one, that goes on, if `resume` is true.
  std::filesystem::path resume_from = {};
};

}  // namespace lockstep::train
