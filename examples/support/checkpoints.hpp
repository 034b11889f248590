#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include <lockstep/checkpoint/manager.hpp>
#include <lockstep/comm/session.hpp>

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

/// The checkpoints of a run; without --checkpoint-dir it does nothing.
class Checkpoints {
 public:
  /// Every rank must make one. @throws lockstep::InvalidArgument if another job has the folder.
  Checkpoints(const CheckpointOptions& options, lockstep::Session& session);

  /// As lockstep::checkpoint::Manager::add.
  template <class... T>
  void add(std::string name, T&... objects) {
    if (manager_) manager_->add(std::move(name), objects...);
  }
  /// Goes on from a checkpoint, as --resume says, when all is added.
  /// @return steps made already.
  std::int64_t resume();
  /// To be called after each step with the number of steps made: saves if it is time.
  void after_step(std::int64_t step);
  /// Saves the end of the run, unless that is saved.
  void finish(std::int64_t step);

 private:
  CheckpointOptions options_;
  bool is_main_;
  std::optional<lockstep::checkpoint::Manager> manager_;
  std::int64_t saved_ = -1;  // the last step that was
};

}  // namespace examples
