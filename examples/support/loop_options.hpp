#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include <lockstep/train/loop.hpp>

#include "support/command_line.hpp"

/// @file
/// The options of checkpoints and evaluations, alike in all training programs.

namespace examples {

/// What the command line says.
struct LoopChoice {
  std::filesystem::path folder;  ///< empty: no checkpoints
  std::string save_every = "auto", resume = "auto";
  int keep = 2;
  bool partial = false;
  std::int64_t snapshot_every = 0;
  std::filesystem::path snapshot_folder = "/dev/shm";
  std::int64_t eval_every = 0, patience = 0;

  /// True if `resume` is a path.
  bool names_checkpoint() const;
  /// The same for a loop of so many steps and epochs; one of them may be 0.
  lockstep::train::LoopOptions options(std::int64_t steps, std::int64_t epochs = 0) const;
};

/// Adds --checkpoint-dir, --save-every, --keep, --resume, --partial, --snapshot-every and
/// --snapshot-dir.
void add_checkpoint_options(CLI::App& app, LoopChoice& choice);
/// The same, and --eval-every and --patience.
void add_loop_options(CLI::App& app, LoopChoice& choice);
/// Refuses options that say nothing without --checkpoint-dir, and a checkpoint to resume that is
/// not there, unless the run has some of its own. @throws Exit.
void check_loop_options(const CLI::App& app, const LoopChoice& choice);

}  // namespace examples
