#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include <lockstep/comm/session.hpp>
#include <lockstep/train/loop.hpp>

#include "support/progress.hpp"
#include "support/step_log.hpp"

/// @file
/// What a training program tells of its loop: progress, a log, evaluations.

namespace examples {

/// How it is told.
struct ReportOptions {
  std::string unit;                ///< of what a step takes in, such as images
  std::int64_t units_a_step = 0;   ///< over all ranks
  std::int64_t epoch_steps = 0;    ///< 0: there are no epochs
  std::filesystem::path log = {};  ///< one JSON object a step; empty: none
  bool skips_overflows = false;    ///< a loss scaler copes with losses that are not finite
  std::function<std::string(double metric)> describe = {};  ///< "test accuracy 97 %"
};

/// Listens to a loop while it lives.
class TrainingReport {
 public:
  /// Ends the training if the loss is no number any more. @param loop must live as long.
  TrainingReport(lockstep::train::Loop& loop, const lockstep::Session& session,
                 ReportOptions options);
  TrainingReport(const TrainingReport&) = delete;
  TrainingReport& operator=(const TrainingReport&) = delete;

  /// Tells how it ended: which evaluation was the best, where there were several to choose from,
  /// and why steps were not captured that were to be.
  void finish(const lockstep::train::Step& step);

 private:
  void tell(const lockstep::train::StepReport& step);
  void tell(const lockstep::train::Evaluation& evaluation);

  lockstep::train::Loop& loop_;
  ReportOptions options_;
  bool is_main_;
  std::optional<Progress> progress_;  // from the first step on
  StepLog log_;
  int evaluations_ = 0;
};

/// Waits until rank 0 has written what was trained: the first rank that returns a code but 0 from
/// Session::run ends all. @return the code.
int leave_together(lockstep::Session& session, int code);

}  // namespace examples
