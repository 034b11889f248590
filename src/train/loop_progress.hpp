#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "lockstep/checkpoint/state.hpp"
#include "lockstep/train/loop_options.hpp"
#include "lockstep/train/loop_reports.hpp"

/// @file
/// Where a training loop stands.

namespace lockstep::train {

/// Steps and epochs that were made, and are to be.
struct LoopProgress {
  std::int64_t step = 0;                      ///< made, over all starts
  std::int64_t length = 0;                    ///< how many there are to be
  std::int64_t epochs = 0, epoch_begin = 0;   ///< ended, and the step after which this one began
  std::int64_t epoch_steps = 0;               ///< of this one; 0: there are no epochs
  bool ends_epoch = false;                    ///< the last step did
  bool is_amid_epoch = false;                 ///< what was resumed stood amid one
  bool is_due = false;                        ///< an evaluation after the last step
  std::optional<Evaluation> evaluation = {};  ///< the last
  std::string resumed_from = {};              ///< place_of(resume_from) of its first start
  std::string resumed_by = {};                ///< name_of(resume_from) of its first start

  /// Says how long the run is. Where batches have another size than before, nobody knows how many
  /// are left of the epoch: its end counts, as `add_step` hears of it.
  void set_length(const LoopOptions& options, std::int64_t steps_of_epoch);
  /// Counts a step.
  void add_step(const LoopOptions& options, bool is_last_of_epoch, bool evaluates);
  /// Counts an epoch, which has ended with the last step.
  void end_epoch();
  /// Whether there are steps left.
  bool goes_on(const LoopOptions& options) const noexcept {
    return step < length && (options.epochs == 0 || epochs < options.epochs);
  }
};

/// All but the step, which checkpoints have anyway, and the length.
checkpoint::ValueState state_of(LoopProgress& progress);

/// Where a checkpoint lies or lay, from wherever it was given, in characters that values may have;
/// empty if nobody knows.
std::string place_of(const std::filesystem::path& checkpoint);
/// The same of how it is called, whatever links in that lead to.
std::string name_of(const std::filesystem::path& checkpoint);

/// Whether a run began with this `resume_from`, by the newest checkpoint in its folder that can be
/// read: with what is in that place, or has that name.
bool has_begun_with(const std::filesystem::path& checkpoint, const std::filesystem::path& folder);

}  // namespace lockstep::train
