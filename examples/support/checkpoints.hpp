#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include <lockstep/amp/grad_scaler.hpp>
#include <lockstep/checkpoint/manager.hpp>
#include <lockstep/comm/session.hpp>
#include <lockstep/comm/stop_request.hpp>
#include <lockstep/core/random.hpp>
#include <lockstep/optim/lr_scheduler.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/optim/weight_average.hpp>

#include "support/command_line.hpp"

/// @file
/// The options of checkpoints, and what they ask for.

namespace examples {

/// What the command line says.
struct CheckpointOptions {
  std::filesystem::path folder;  ///< empty: no checkpoints
  std::string save_every = "auto", resume = "auto";
  int keep = 2;
};

/// Adds --checkpoint-dir, --save-every, --keep and --resume.
void add_checkpoint_options(CLI::App& app, CheckpointOptions& options);
/// Refuses options that say nothing without --checkpoint-dir. @throws Exit.
void check_checkpoint_options(const CLI::App& app, const CheckpointOptions& options);

/// The checkpoints of a run, which SIGTERM and SIGUSR1 stop behind a step; without --checkpoint-dir
/// it does nothing.
class Checkpoints {
 public:
  /// Every rank must make one. @throws lockstep::InvalidArgument if another job has the folder.
  Checkpoints(const CheckpointOptions& options, lockstep::Session& session);

  /// As lockstep::checkpoint::Manager::add.
  template <class... T>
  void add(std::string name, T&... objects) {
    if (manager_) manager_->add(std::move(name), objects...);
  }
  /// What every training has. @param average of the weights, if there is one.
  template <class Replica>
  void add_training(Replica& replica, lockstep::optim::Optimizer& optimizer,
                    lockstep::optim::LRScheduler& scheduler, lockstep::amp::GradScaler& scaler,
                    std::optional<lockstep::optim::WeightAverage>& average) {
    add("model", replica);
    add("optimizer", optimizer, replica);
    add("scheduler", scheduler);
    add("scaler", scaler);
    if (average) add("ema", *average);
    add("random", lockstep::default_generator());
  }
  /// Goes on from a checkpoint, as --resume says, when all is added.
  /// @return steps made already.
  std::int64_t resume();
  /// To be called after each step with the number of steps made: saves if it is time.
  /// @return true if the job is to stop here: call `finish`, and return `exit_code`.
  bool after_step(std::int64_t step);
  /// Saves the end of the run, or where it stops, unless that is saved, or will not fit into the
  /// time that is left.
  void finish(std::int64_t step);
  /// Whether the job is to stop, and what it returns then.
  bool is_stopped() const { return is_stopped_; }
  static constexpr int exit_code = lockstep::StopRequest::exit_code;

 private:
  bool has_time();

  CheckpointOptions options_;
  lockstep::Session& session_;
  std::optional<lockstep::StopRequest> stop_;
  std::optional<lockstep::checkpoint::Manager> manager_;
  std::int64_t saved_ = -1;  // the last step that was
  bool is_stopped_ = false;
};

}  // namespace examples
