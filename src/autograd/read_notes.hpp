#pragma once

#include <utility>

#include "lockstep/autograd/thread_modes.hpp"

/// @file
/// Whether what a thread reads is told to a StepGraph.

namespace lockstep::autograd {

/// Switches thread_modes.noting_reads until the end of scope.
class ReadNotesGuard {
 public:
  explicit ReadNotesGuard(bool noting) noexcept
      : previous_(std::exchange(thread_modes.noting_reads, noting)) {}
  ReadNotesGuard(const ReadNotesGuard&) = delete;
  ReadNotesGuard& operator=(const ReadNotesGuard&) = delete;
  ~ReadNotesGuard() { thread_modes.noting_reads = previous_; }

 private:
  const bool previous_;
};

}  // namespace lockstep::autograd
