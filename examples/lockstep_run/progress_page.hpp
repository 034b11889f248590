#pragma once

#include <cstdint>
#include <string>

#include "lockstep_run/descriptor.hpp"

namespace run {

/// What a rank has told of; -1: no step.
struct Progress {
  std::int64_t step = -1;      ///< the last that it has completed
  std::int64_t first = -1;     ///< the first that it told of, behind which it began
  std::int64_t saved = -1;     ///< that of its newest checkpoint
  std::int64_t long_work = 0;  ///< not 0: it is in what takes longer than a step, as an evaluation
};

/// Memory in which a rank notes its progress
/// (src/comm/run_progress.hpp): what it holds is still there when the rank has been killed.
class ProgressPage {
 public:
  ProgressPage();
  ProgressPage(ProgressPage&& other) noexcept
      : file_(std::move(other.file_)), page_(std::exchange(other.page_, nullptr)) {}
  ProgressPage& operator=(ProgressPage&&) = delete;
  ~ProgressPage();

  /// Where processes of this host find it as long as this one lives.
  std::string path() const;
  Progress progress() const;
  /// Asks the rank to say what it is at.
  void ask();

 private:
  Descriptor file_;
  void* page_ = nullptr;
};

}  // namespace run
