#pragma once

#include <cstdint>
#include <string>

#include "lockstep_run/descriptor.hpp"

namespace run {

/// Memory in which a rank notes the last step that it has completed
/// (src/checkpoint/run_progress.hpp): what it holds is still there when the rank has been killed.
class ProgressPage {
 public:
  ProgressPage();
  ProgressPage(ProgressPage&& other) noexcept
      : file_(std::move(other.file_)), page_(std::exchange(other.page_, nullptr)) {}
  ProgressPage& operator=(ProgressPage&&) = delete;
  ~ProgressPage();

  /// Where processes of this host find it as long as this one lives.
  std::string path() const;
  /// -1: none yet.
  std::int64_t step() const;

 private:
  Descriptor file_;
  void* page_ = nullptr;
};

}  // namespace run
